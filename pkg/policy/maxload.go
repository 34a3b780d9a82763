package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// A bound is a percentage of the mean load. A bound below the mean cannot be kept, and above ten times the mean
// there is no endpoint to protect.
const (
	LeastMaxLoad = 100
	MostMaxLoad  = 1000
)

// UsualMaxLoad is the bound where one is asked for without a number: mode Auto tolerates as much.
const UsualMaxLoad = 120

// MaxLoadError says why a text is not a bound.
type MaxLoadError struct {
	Text  string
	Meant string // what was probably meant; empty if nothing comes near
}

// Error says what is wrong and what to write.
func (e MaxLoadError) Error() string {
	return fmt.Sprintf("%.*q %s; %s", maxQuoted, e.Text, e.Cause(), e.Remedy())
}

// Cause is what is wrong, as the rest of a sentence about the text.
func (MaxLoadError) Cause() string {
	return "is no whole number from 100 to 1000 with % right behind it"
}

// Remedy is what to do about it.
func (e MaxLoadError) Remedy() string {
	if e.Meant != "" {
		return fmt.Sprintf("did you mean %q?", e.Meant)
	}
	return `write a percentage of the mean load, such as "120%"`
}

// ParseMaxLoad reads a bound: a whole number from 100 to 1000, directly followed by %. The error is a MaxLoadError.
func ParseMaxLoad(text string) (percent uint64, err error) {
	if number, found := strings.CutSuffix(text, "%"); found {
		percent, err := strconv.ParseUint(number, 10, 32)
		if err == nil && LeastMaxLoad <= percent && percent <= MostMaxLoad && number[0] != '0' {
			return percent, nil
		}
	}
	return 0, MaxLoadError{Text: text, Meant: meantLoad(text)}
}

// FormatMaxLoad writes a bound as ParseMaxLoad reads it.
func FormatMaxLoad(percent uint64) string { return strconv.FormatUint(percent, 10) + "%" }

// meantLoad is the bound that was probably meant: the number lacks its sign, or has spaces, or is a fraction, a factor,
// or the load allowed on top of the mean. Empty if the text is no number.
func meantLoad(text string) string {
	const longest, hundred = 32, 100
	if len(text) > longest {
		return ""
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || strings.ContainsRune(`"'_`, r) {
			return -1
		}
		return unicode.ToLower(r)
	}, text)
	number, isPercent := strings.CutSuffix(text, "%")
	number = strings.TrimSuffix(strings.TrimPrefix(number, "x"), "x")
	number = strings.TrimSuffix(strings.TrimPrefix(number, "×"), "×")
	number, isOnTop := strings.CutPrefix(number, "+")
	number = strings.Replace(number, ",", ".", 1)
	if strings.Trim(number, "0123456789.") != "" {
		return ""
	}
	value, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil:
		return ""
	case !isPercent && value <= MostMaxLoad/hundred: // how many times the mean
		value *= hundred
	}
	if isOnTop || value > 0 && value <= hundred/2 {
		value += hundred
	}
	return FormatMaxLoad(uint64(math.Round(min(max(value, LeastMaxLoad), MostMaxLoad))))
}
