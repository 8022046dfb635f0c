"""`weft test`: compares the expected results of requests with the results that the mesh's YAML gives. Nothing is sent
or started."""

from __future__ import annotations

from pathlib import Path

import click
from click.exceptions import Exit

from weft.cli.flags import shared
from weft.cli.print.output import counted, fail, is_data, print_data, say, trouble_is_no_answer


@click.command()
@click.argument(
    "paths",
    nargs=-1,
    type=click.Path(path_type=Path),
    help="Files and directories: the mesh's YAML, and RequestTests; the current directory if none is given.",
)
@click.option("-v", "--verbose", is_flag=True, help="Also explain each request that is not as expected.")
@shared.text_or_data
def test(paths: tuple[Path, ...], verbose: bool, output: str) -> None:
    """Check that requests have their expected results. A RequestTest declares a request and its expected result; the
    mesh's YAML decides the actual result. Nothing is started and nothing is sent, so it takes milliseconds and can run
    in CI.

    \b
    Exit codes: 0 all results are as expected, 1 a result is not, or an object is rejected,
            2 no result: no such file, invalid YAML, an invalid command line.

    \b
    Example: weft test examples/shop tests/requests.yaml
    """
    import time
    from datetime import UTC, datetime

    from weft.cli.read.trial_source import check, is_error, read, staged, warn
    from weft.inspect.compare.trial import try_case

    given = list(paths) or [Path()]
    with trouble_is_no_answer():
        files = read(given)
        check(files.problems)
    if not files.cases:
        fail("the given files contain no RequestTest", "docs/explain.md shows how to write one", code=2)
    if not files.documents:
        fail(
            "the given files contain no mesh", f"give the YAML of the mesh too: weft test DIRECTORY {given[0]}", code=2
        )
    with trouble_is_no_answer():
        stage, refused = staged(files.documents)
        warn(refused)
    now, started = datetime.now(UTC), time.monotonic()
    tried = [try_case(stage, case, now) for case in files.cases]
    took = 1000 * (time.monotonic() - started) / len(tried)
    if is_data(output):
        print_data(
            [{"request": str(each.case), "where": each.case.where, "wrong": each.wrong} for each in tried], output
        )
    else:
        for each in tried:
            click.echo(
                f"{'FAIL' if each.wrong else 'ok  '} {each.case}  ({each.case.where.file}:{each.case.where.line})"
            )
            for word in each.wrong:
                click.echo(f"     {word}")
            if each.wrong and verbose:
                for line in each.lines:
                    click.echo(f"       {line}")
    wrong = sum(bool(each.wrong) for each in tried)
    say(f"{counted(len(tried), 'request')}, {wrong} not as expected; {took:.1f} ms each")
    if wrong or any(map(is_error, refused)):
        raise Exit(1)
