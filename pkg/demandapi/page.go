// Package demandapi writes and parses the page on which a proxy reports how many connections its node's clients opened
// to Services.
//
// The page is text: lines of a key and a value, then a line for each Service with connections:
//
//	cursor 6f1c0e93b2a4d715-42
//	seconds 30.012
//	left-out 0
//	shop/web 6024
//	open-services 1
//	open shop/web 310
//
// Counts are differences since the cursor that the client sent, so no counts are lost with a lost response. A client
// without a cursor, or with an unknown one, gets a cursor and no counts: `seconds` is 0. Open connections are counted
// when the page is read; without `open-services` they are unknown.
package demandapi

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// Path is the URL path of the page.
	Path = "/demand"
	// CursorParam is the query parameter with the cursor.
	CursorParam = "after"
	// MaxServices is the maximum number of Services for which a proxy counts connections.
	MaxServices = 1000
	// MaxSize is the maximum size of a page in bytes: two lines for MaxServices with the longest names and numbers.
	MaxSize = MaxServices*(2*(63+1+63+1+20+1)+5) + 1<<10

	openPrefix   = "open " // has 5 bytes
	openServices = "open-services"
)

// Page is the report of a proxy.
type Page struct {
	// Cursor is the cursor for the next request.
	Cursor string
	// Duration is the time over which connections were counted; 0 means no counts, because the cursor was unknown.
	Duration time.Duration
	// Skipped is the number of Services that are not counted because there are too many.
	Skipped int
	// Counts are new connections by Service, as namespace/name. Services without connections may be missing.
	Counts map[string]uint64
	// Open are open connections with a reply, by Service. It contains only Services whose demand should be published. It is
	// nil if they are unknown, and empty if there are none.
	Open map[string]uint64
}

// Text returns the page as it is served. Services are sorted.
func (p Page) Text() []byte {
	text := fmt.Appendf(nil, "cursor %s\nseconds %.3f\nleft-out %d\n", p.Cursor, p.Duration.Seconds(), p.Skipped)
	text = appendCounts(text, "", p.Counts)
	if p.Open != nil {
		text = fmt.Appendf(text, "%s %d\n", openServices, len(p.Open))
	}
	return appendCounts(text, openPrefix, p.Open)
}

// appendCounts appends a line for each Service with a count above zero, sorted.
func appendCounts(text []byte, prefix string, counts map[string]uint64) []byte {
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] > 0 {
			text = fmt.Appendf(text, "%s%s %d\n", prefix, name, counts[name])
		}
	}
	return text
}

// maxSeconds is the longest counting time that a page may state.
const maxSeconds = 24 * 60 * 60

// Parse parses a page. Any program may be listening at a node's address: malformed pages are errors, and callers must
// check the values. Unknown keys are skipped, because a newer proxy may write them.
func Parse(text []byte) (Page, error) {
	page := Page{Counts: map[string]uint64{}}
	for number, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		key, value, _ := strings.Cut(line, " ")
		if err := page.parseLine(key, value); err != nil {
			return Page{}, fmt.Errorf("line %d: %w", number+1, err)
		}
		if max(len(page.Counts), len(page.Open)) > MaxServices {
			return Page{}, fmt.Errorf("more than %d Services", MaxServices)
		}
	}
	if page.Cursor == "" {
		return Page{}, fmt.Errorf("no cursor")
	}
	return page, nil
}

func (p *Page) parseLine(key, value string) (err error) {
	switch {
	case key == "cursor":
		if value == "" || len(value) > 64 {
			return fmt.Errorf("cursor must have 1 to 64 bytes, not %d", len(value))
		}
		p.Cursor = strings.Clone(value) // it is retained until the next page and must not keep this one in memory
	case key == "seconds":
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil || !(seconds >= 0 && seconds <= maxSeconds) { // also rejects NaN
			return fmt.Errorf("seconds %q must be between 0 and one day", value)
		}
		p.Duration = time.Duration(seconds * float64(time.Second))
	case key == "left-out":
		if p.Skipped, err = strconv.Atoi(value); err != nil || p.Skipped < 0 {
			return fmt.Errorf("left-out %q must be a number of Services", value)
		}
	case key == openServices:
		p.Open = map[string]uint64{}
	case key == strings.TrimSpace(openPrefix) && p.Open != nil:
		service, number, _ := strings.Cut(value, " ")
		return parseCount(p.Open, service, number)
	case strings.Contains(key, "/"):
		return parseCount(p.Counts, key, value)
	}
	return nil
}

func parseCount(counts map[string]uint64, service, number string) error {
	count, err := strconv.ParseUint(number, 10, 64)
	if err != nil || !strings.Contains(service, "/") {
		return fmt.Errorf("%q of %q must be the number of connections to a Service", number, service)
	}
	counts[service] = count
	return nil
}
