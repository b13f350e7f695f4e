"""What several tests build on."""

import pytest

from doom_a3c.settings import UserError, plain, validated


def changed(config, **flat):
    """Returns a config with other values of those settings, by their flat names."""
    return validated(type(config), {**plain(config), **flat}, "test")


def complaint(call, *arguments):
    """Returns the one line that a call tells of a mistake."""
    with pytest.raises(UserError) as raised:
        call(*arguments)
    message = str(raised.value)
    assert len(message.splitlines()) == 1
    return message
