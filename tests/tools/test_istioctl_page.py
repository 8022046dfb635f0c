from tools.istioctl_commands import COMMANDS

from tools import istioctl_page


def test_the_page_has_every_command_and_is_up_to_date_with_the_list():
    assert istioctl_page.PAGE.read_text() == istioctl_page.page(), "run: make reference"
    assert all(f"| `{each.name}` |" in istioctl_page.page() for each in COMMANDS)
