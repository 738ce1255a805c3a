package tiny

import "testing"

func TestMax(t *testing.T) {
	if Max(1, 2) != 2 || Max(2, 1) != 2 {
		t.Error("not the greater one")
	}
}

func TestWeak(t *testing.T) { Max(1, 2) }

func TestRed(t *testing.T) { t.Error("always") }
