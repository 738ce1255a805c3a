package shard

import (
	"testing"
	"time"
)

func TestParseMetaReturnsStartAndIdentity(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]meta{
		"":        {},
		"luatx 0": {identity: "luatx 0"},
		"an identity of exactly forty characters.":                                    {identity: "an identity of exactly forty characters."},
		"luatx 2, namespace shop, 256 partitions":                                     {identity: "luatx 2, namespace shop, 256 partitions"},
		"17672256000001" + "0000000000000" + "luatx 3, namespace n":                   {identity: "luatx 3, namespace n"},
		"17673120000001767225600000" + "1" + "0000000000000" + "luatx 7, namespace n": {time.UnixMilli(1767225600000), "luatx 7, namespace n"},
		"17673120000001767225600000" + "1" + "0000000000000" + "another program":      {time.UnixMilli(1767225600000), "another program"},
	} {
		if got := parseMeta(text); !got.start.Equal(want.start) || got.identity != want.identity {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
