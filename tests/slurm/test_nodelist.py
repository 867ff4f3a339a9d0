import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound.slurm.nodelist import NodeListError, compress, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("c427-032,c429-002", ["c427-032", "c429-002"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("n[9-10]", ["n9", "n10"]),
        ("rack[1-2]n[01-02]", ["rack1n01", "rack1n02", "rack2n01", "rack2n02"]),
        ("n[3,1-2],m", ["n3", "n1", "n2", "m"]),
        ("n[1-2],n1", ["n1", "n2"]),
        ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
    ],
)
def test_expand(text, names):
    assert expand(text) == names


def test_several_padded_and_single_pieces():
    names = expand("foo003,foo0[10-20],foo[103-104]")
    assert names[:2] == ["foo003", "foo010"] and names[-1] == "foo104" and len(names) == 14
    assert compress(names) == "foo[003,010-020,103-104]"


@pytest.mark.parametrize(
    "text",
    ["n[1-", "n]1", "n[[1]]", "n[1-2", "a,,b", ",a", "n[]", "n[b-c]", "n[5-2]", "n[1--2]", "a b", "n[1-2]]", "n[١]"],
)
def test_malformed_lists_are_refused_with_their_text(text):
    with pytest.raises(NodeListError) as caught:
        expand(text)
    assert repr(text)[1:3] in str(caught.value)


@pytest.mark.parametrize("text", ["n[1-99999999999]", "a[0-999]b[0-999]c[0-999]d[0-999]", "n[" + "1" * 5000 + "]"])
def test_absurd_lists_are_refused_not_expanded(text):
    with pytest.raises(NodeListError):
        expand(text)


def test_the_sum_of_parts_is_bounded_too():
    with pytest.raises(NodeListError, match="more than 10 names"):
        expand("a[1-6],b[1-6]", limit=10)


def test_compress_keeps_order_of_prefixes_and_padding():
    assert compress(["n2", "n1", "m7", "n3", "login"]) == "n[1-3],m7,login"
    assert compress(["n9", "n09", "n10", "n11"]) == "n9,n[09-11]"
    with pytest.raises(NodeListError):
        compress(["n[1]"])


NAMES = st.from_regex(r"[a-c]{1,2}(-?[0-9]{1,4}){0,2}[x]?", fullmatch=True)


@given(st.lists(NAMES, max_size=60))
def test_round_trip(names):
    assert set(expand(compress(names))) == set(names)


@given(st.text(alphabet="n[]-,01 9é\n", max_size=30))
def test_expand_is_total(text):
    try:
        names = expand(text)
    except NodeListError:
        return
    assert len(set(names)) == len(names)
    assert set(expand(compress(names))) == set(names)
