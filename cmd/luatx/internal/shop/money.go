package shop

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Pence is an amount of money in pence. Its text, also in JSON, is in pounds with two decimals.
type Pence int64

// maxNumber bounds quantities and prices, so that quantity times price always fits an int64.
const maxNumber = 1_000_000_000

var (
	errMoney    = errors.New("is not an amount in pounds such as 2.55")
	errDecimals = errors.New("has more than two decimals")
	errWhole    = errors.New("is not a whole number")
	errTooLarge = errors.New("is too large")
)

// parsePence parses pounds with at most two decimals, such as 2.55, 2.5 or -3, without floating point. It returns an error
// for exponents, signs other than a leading minus, and amounts above ten million pounds.
func parsePence(text string) (Pence, error) {
	digits, negative := strings.CutPrefix(text, "-")
	pounds, decimals, point := strings.Cut(digits, ".")
	switch {
	case !allDigits(pounds) || point && !allDigits(decimals):
		return 0, errMoney
	case len(decimals) > 2:
		return 0, errDecimals
	}
	value, err := parseNumber(pounds+(decimals + "00")[:2], negative)
	return Pence(value), err
}

// parseNumber parses digits as a number within the bound.
func parseNumber(digits string, negative bool) (int64, error) {
	value, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || value > maxNumber {
		return 0, errTooLarge
	}
	if negative {
		value = -value
	}
	return value, nil
}

// String returns pounds with two decimals, such as -0.05.
func (p Pence) String() string {
	sign, u := "", uint64(p)
	if p < 0 {
		sign, u = "-", -u // correct for the smallest int64, too
	}
	return fmt.Sprintf("%s%d.%02d", sign, u/100, u%100)
}

// MarshalJSON returns a JSON number of pounds with two decimals.
func (p Pence) MarshalJSON() ([]byte, error) { return []byte(p.String()), nil }

// parseUnits parses a whole number. It accepts 6.0, because spreadsheets write 6 like that.
func parseUnits(text string) (int64, error) {
	digits, negative := strings.CutPrefix(text, "-")
	digits, ok := wholePart(digits)
	if !ok {
		return 0, errWhole
	}
	return parseNumber(digits, negative)
}

// wholePart returns the text before the decimal point if only zeros follow it.
func wholePart(text string) (string, bool) {
	whole, zeros, point := strings.Cut(text, ".")
	if !allDigits(whole) || point && (zeros == "" || strings.Trim(zeros, "0") != "") {
		return "", false
	}
	return whole, true
}

func allDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// turnover sums the absolute amounts of lines, so that a reader can reject a line with which a total might overflow.
type turnover struct{ pence, units int64 }

func (t *turnover) add(line Line) error {
	pence, units := abs(line.Units*int64(line.Price)), abs(line.Units)
	if pence > math.MaxInt64-t.pence || units > math.MaxInt64-t.units {
		return errors.New("makes the totals too large")
	}
	t.pence, t.units = t.pence+pence, t.units+units
	return nil
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}
