package shop

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
)

func TestParsePenceAcceptsOnlyExactAmounts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Pence{
		"0": 0, "2": 200, "2.5": 250, "2.55": 255, "0.01": 1, "0.29": 29, "-0": 0, "-0.05": -5,
		"-11062.06": -1106206, "1.10": 110, "007.10": 710, "10000000": 1_000_000_000,
	} {
		if got, err := parsePence(text); err != nil || got != want {
			t.Errorf("parsePence(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]error{
		"": errMoney, "-": errMoney, ".": errMoney, ".5": errMoney, "5.": errMoney, "+1": errMoney, "--1": errMoney,
		"1e2": errMoney, "1,50": errMoney, "£1": errMoney, " 1": errMoney, "1.2.3": errMoney, "0x1": errMoney, "NaN": errMoney,
		"٣": errMoney, "1.-5": errMoney, "1.555": errDecimals, "2.550": errDecimals, "0.001": errDecimals,
		"10000000.01": errTooLarge, "99999999999999999999": errTooLarge, "-99999999999999999999.00": errTooLarge,
	} {
		if got, err := parsePence(text); !errors.Is(err, want) {
			t.Errorf("parsePence(%q) = %d, %v; want the error %q", text, got, err, want)
		}
	}
}

func TestPenceAreWrittenAsPounds(t *testing.T) {
	t.Parallel()
	for pence, want := range map[Pence]string{
		0: "0.00", 5: "0.05", -5: "-0.05", 99: "0.99", 100: "1.00", -12345: "-123.45",
		math.MinInt64: "-92233720368547758.08", math.MaxInt64: "92233720368547758.07",
	} {
		if got := pence.String(); got != want {
			t.Errorf("Pence(%d) is written %q, want %q", int64(pence), got, want)
		}
	}
	if got, err := json.Marshal([]Pence{255, -5}); err != nil || string(got) != "[2.55,-0.05]" {
		t.Errorf("as JSON: %s, %v", got, err)
	}
}

func TestParseUnitsAcceptsOnlyWholeNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"0": 0, "6": 6, "-12": -12, "6.0": 6, "6.000": 6, "1000000000": 1e9} {
		if got, err := parseUnits(text); err != nil || got != want {
			t.Errorf("parseUnits(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-", "1.5", "1.", ".0", "six", "1e3", "1000000001", "99999999999999999999", "--1", "+1"} {
		if got, err := parseUnits(text); err == nil {
			t.Errorf("parseUnits(%q) = %d, want an error", text, got)
		}
	}
}

// FuzzParsePence checks that an accepted text is parsed as exactly that decimal number.
func FuzzParsePence(f *testing.F) {
	for _, seed := range []string{"2.55", "-0.05", "1.555", "1e2", "", "10000000", "0.29", ".5", "99999999999999999999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pence, err := parsePence(text)
		if err != nil {
			return
		}
		exact, ok := new(big.Rat).SetString(text)
		if !ok || exact.Cmp(big.NewRat(int64(pence), 100)) != 0 {
			t.Fatalf("%q became %d pence", text, pence)
		}
		again, err := parsePence(pence.String())
		if err != nil || again != pence {
			t.Fatalf("%q is written %q, which reads as %d, %v", text, pence, again, err)
		}
		if strings.ContainsAny(text, "eE+/ ") {
			t.Fatalf("%q is accepted", text)
		}
	})
}
