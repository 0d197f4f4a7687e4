"""The command line of `jaxattn train`."""

import pytest

from jaxattn.study.commands import train


@pytest.mark.parametrize("option", [["--cfg", "job"], ["--cfg=job"], ["-c", "job"], ["-c=job"]], ids=" ".join)
def test_an_option_may_stand_before_its_value_or_hold_it(option, capsys):
    train.main([*option, "data.d=4", "--resolve"])
    assert "  d: 4\n" in capsys.readouterr().out
