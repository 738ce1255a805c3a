package shard

import "testing"

func TestPositionIsMalformedUnlessItsValueIsComplete(t *testing.T) {
	t.Parallel()
	const token = "0123456789"
	for value, malformed := range map[string]bool{
		token + "0042 7 e":  false,
		token + "0042!7 e":  false,
		token + " 7 ":       false,
		"":                  true,
		token:               true,
		token + "0042":      true,
		token + "0042x7 e":  true,
		token + "0042 7":    true,
		token + "0042 x e":  true,
		token[1:] + " 7 e ": true,
	} {
		if got := positionOf("scope\x00orders\x000", value); got.Malformed != malformed {
			t.Errorf("%q: %+v, malformed %t", value, got, malformed)
		}
	}
	want := Position{Scope: "scope", Source: "orders", Partition: "0", Offset: "0042", Broken: true, Generation: 70, Epoch: "e f"}
	if got := positionOf("scope\x00orders\x000", token+"0042!70 e f"); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
