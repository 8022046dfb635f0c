# The shop's book of payments: lines over TCP, in plain Perl. The server sends first, as with MySQL and SMTP:
#
#   < ledger 1 ready
#   > ADD 2900
#   < OK 1 2900          (entry number, total)
#   > MIGRATE 2
#   < OK 2               (schema version)
use strict;
use warnings;
use IO::Select;
use IO::Socket::IP;

$| = 1;
my $port = $ENV{PORT} // 7000;
my ($entries, $total, $schema) = (0, 0, 1);
my (%unread, $ended);
$SIG{TERM} = $SIG{INT} = sub { $ended = 1 };
$SIG{PIPE} = 'IGNORE';

my $listener = IO::Socket::IP->new(LocalHost => '::', LocalPort => $port, V6Only => 0, Listen => 128, ReuseAddr => 1)
    || IO::Socket::IP->new(LocalHost => '0.0.0.0', LocalPort => $port, Listen => 128, ReuseAddr => 1)
    or die "cannot listen on $port: $@\n";
my $open = IO::Select->new($listener);
print "ledger listens on $port\n";

# On SIGTERM, accept no more connections, and finish the open ones.
until ($ended && $open->count == 0) {
    if ($ended && $listener) {
        $open->remove($listener);
        close $listener;
        undef $listener;
        next;
    }
    for my $socket ($open->can_read(0.5)) {
        if ($listener && $socket == $listener) {
            my $client = $listener->accept or next;
            $client->blocking(0);
            $open->add($client);
            $unread{$client} = '';
            syswrite $client, "ledger $schema ready\n";
        } elsif (sysread $socket, $unread{$socket}, 4096, length $unread{$socket}) {
            while ($unread{$socket} =~ s/^([^\n]*)\n//) {
                syswrite $socket, answer($1) . "\n";
            }
        } else {
            delete $unread{$socket};
            $open->remove($socket);
            close $socket;
        }
    }
}

sub answer {
    my ($line) = @_;
    if ($line =~ /^ADD (\d+)\r?$/) {
        $total += $1;
        $entries++;
        print "$entries payments, $total cents\n" if $entries % 100 == 0;
        return "OK $entries $total";
    }
    if ($line =~ /^MIGRATE (\d+)\r?$/) {
        $schema = $1;
        print "schema is now $schema\n";
        return "OK $schema";
    }
    return "ERROR what is `$line`? I know ADD and MIGRATE";
}
