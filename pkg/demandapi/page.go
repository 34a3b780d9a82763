// Package demandapi writes and reads the page on which a proxy reports how many connections its node's clients made to
// Services.
//
// It is text: lines of a word and a value, then one for each Service with connections:
//
//	cursor 6f1c0e93b2a4d715-42
//	seconds 30.012
//	left-out 0
//	shop/web 6024
//
// Counts are differences since the cursor that the client handed in, so that no counts are lost when an answer is lost.
// A client without a cursor, or with one that the proxy does not know, gets a cursor and no counts: `seconds` is 0.
package demandapi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// Path is where the page is served.
	Path = "/demand"
	// After is the parameter that has the cursor.
	After = "after"
	// MaxServices is the number of Services for which a proxy counts connections at most.
	MaxServices = 1000
	// MaxSize is how many bytes a page has at most: that many Services, with the longest names and numbers.
	MaxSize = MaxServices*(63+1+63+1+20+1) + 1<<10
)

// Page is what a proxy reports.
type Page struct {
	// Cursor is what to ask with next time.
	Cursor string
	// Took is the time over which the counts were taken; 0: there are none, because the cursor was unknown.
	Took time.Duration
	// Skipped is the number of Services that are not counted, because there are too many.
	Skipped int
	// Counts are new connections by Service, as namespace/name. Services without connections may be missing.
	Counts map[string]uint64
}

// Text returns the page as it is served. Services are sorted.
func (p Page) Text() []byte {
	text := fmt.Appendf(nil, "cursor %s\nseconds %.3f\nleft-out %d\n", p.Cursor, p.Took.Seconds(), p.Skipped)
	names := make([]string, 0, len(p.Counts))
	for name, count := range p.Counts {
		if count > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		text = fmt.Appendf(text, "%s %d\n", name, p.Counts[name])
	}
	return text
}

// maxSeconds is the longest time that a page may say it counted.
const maxSeconds = 24 * 60 * 60

// Parse reads a page. Anybody may answer at a node's address: malformed pages are errors, and callers must check the
// values. Unknown words are skipped, because a newer proxy may write them.
func Parse(text []byte) (Page, error) {
	page := Page{Counts: map[string]uint64{}}
	for number, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		word, value, _ := strings.Cut(line, " ")
		if err := page.parseLine(word, value); err != nil {
			return Page{}, fmt.Errorf("line %d: %w", number+1, err)
		}
		if len(page.Counts) > MaxServices {
			return Page{}, fmt.Errorf("it has more than %d Services", MaxServices)
		}
	}
	if page.Cursor == "" {
		return Page{}, fmt.Errorf("it has no cursor")
	}
	return page, nil
}

func (p *Page) parseLine(word, value string) (err error) {
	switch {
	case word == "cursor":
		if value == "" || len(value) > 64 {
			return fmt.Errorf("the cursor has %d bytes, want 1 to 64", len(value))
		}
		p.Cursor = strings.Clone(value) // it is kept until the next page, which must not keep all of this one
	case word == "seconds":
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil || !(seconds >= 0 && seconds <= maxSeconds) { // which refuses NaN, too
			return fmt.Errorf("seconds %q is not a time of a day at most", value)
		}
		p.Took = time.Duration(seconds * float64(time.Second))
	case word == "left-out":
		if p.Skipped, err = strconv.Atoi(value); err != nil || p.Skipped < 0 {
			return fmt.Errorf("left-out %q is not a number of Services", value)
		}
	case strings.Contains(word, "/"):
		count, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number of connections", value)
		}
		p.Counts[word] = count
	}
	return nil
}
