from train_bench.core.progress_bar import bar


def test_in_a_pipe_the_items_come_and_nothing_is_drawn(capfd):
    assert list(bar(range(3), "counting")) == [0, 1, 2]
    assert capfd.readouterr() == ("", "")


def test_on_a_terminal_the_bar_says_what_and_how_much(capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    for item in bar(iter("abc"), "reading", total=3):
        assert item
    drawn = capfd.readouterr().err
    assert "reading" in drawn and "/3" in drawn
