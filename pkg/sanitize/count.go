package sanitize

import "fmt"

// Count writes a number of things: "1 zone", "2 zones". The noun takes an s.
func Count[N int | uint64](n N, noun string) string { return CountOf(n, noun, noun+"s") }

// CountOf writes a number of things with the words for one and for any other number: "1 patch", "2 patches".
func CountOf[N int | uint64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
