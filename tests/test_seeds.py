"""Seeds of runs and of the random streams in them."""

from train_bench import seeds


def test_seeds_of_a_campaign_differ_and_have_32_bits():
    drawn = seeds.from_entropy(64)
    assert len(set(drawn)) == 64
    assert 2**26 < max(drawn) < 2**32, (
        "by chance all of them are below a 64th of that once in 10^115 campaigns"
    )


def test_seeds_that_follow_from_another_one_differ_by_purpose_and_begin_alike():
    five = seeds.from_base(7, 5)
    assert len(set(five)) == 5
    assert seeds.from_base(7, 3) == five[:3]
    assert not set(five) & {*seeds.from_base(7, 5, purpose="rcp"), *seeds.from_base(8, 5)}


def test_every_stream_of_a_run_has_a_seed_of_its_own():
    streams = [
        ("order", 0),
        ("order", 1),
        ("dropout", 0, 0),
        ("dropout", 0, 1),
        ("dropout", 1, 0),
        ("weights",),
    ]
    drawn = {seeds.derive(seed, *stream) for seed in (1, 2) for stream in streams}
    assert len(drawn) == 12
    assert max(drawn) < 2**32
