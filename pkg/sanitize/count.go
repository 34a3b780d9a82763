package sanitize

import "fmt"

// Count formats a number with a noun: "1 zone", "2 zones". The plural of the noun has an s.
func Count[N int | uint64](n N, noun string) string { return CountOf(n, noun, noun+"s") }

// CountOf formats a number with a singular or plural noun: "1 patch", "2 patches".
func CountOf[N int | uint64](n N, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return fmt.Sprintf("%d %s", n, plural)
}
