package config

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/vicinity-proxy/vicinity/pkg/printable"
)

// Report is what 'run --check' prints.
//
// Its JSON names are an interface: scripts read them.
type Report struct {
	Starts bool   `json:"starts"`
	File   string `json:"file"`
	Node   string `json:"node"`
	// Settings are about the file, OnNode about this node. Own are the settings of our own that the file has, by field.
	Settings []Verdict         `json:"settings"`
	Own      map[string]string `json:"own"`
	OnNode   []Verdict         `json:"onNode"`
}

// Judge sets Starts: nothing is refused.
func (r *Report) Judge() {
	r.Starts = !slices.ContainsFunc(slices.Concat(r.Settings, r.OnNode), func(v Verdict) bool { return v.Outcome == Refused })
}

// Text writes the report for a person. What stays as it was is only counted.
func (r *Report) Text(to io.Writer) {
	table := verdictTable{{"LINE", "SETTING", "IN THE FILE", "HERE"}}
	same := 0
	for _, verdict := range r.Settings {
		if verdict.Outcome == Same {
			same++
			continue
		}
		table = append(table, rowsOf(&verdict, cmp.Or(strings.TrimPrefix(fmt.Sprint(verdict.Line), "0"), "-"))...)
	}
	table.print(to)
	printable.Fprintf(to, "Settings of the file that do what they do in kube-proxy: %d. What is kube-proxy's default is not listed.\n\n",
		same)
	if len(r.Own) > 0 {
		printable.Fprintf(to, "Settings of our own in the file: %s.\n\n", strings.Join(slices.Sorted(maps.Keys(r.Own)), ", "))
	}
	table = verdictTable{{"", "ON THIS NODE", "IS", "HERE"}}
	for _, verdict := range r.OnNode {
		table = append(table, rowsOf(&verdict, "")...)
	}
	table.print(to)
	if r.Starts {
		printable.Fprintf(to, "\nThe proxy would start with this file on this node. Nothing was changed.\n")
		return
	}
	printable.Fprintf(to, "\nThe proxy would not start: see what is refused. Nothing was changed.\n")
}

// verdictTable are rows whose last cell is wrapped.
type verdictTable [][4]string

// A value is cut after widestValue letters, and a subject after widestSubject; JSON has them whole. The last cell has
// what is left of lineWidth, at least leastHere.
const widestSubject, widestValue, lineWidth, leastHere = 50, 44, 120, 40

func rowsOf(v *Verdict, line string) verdictTable {
	here := v.Here
	if slices.Contains([]Outcome{Refused, Unknown, Leftover}, v.Outcome) {
		here = string(v.Outcome) + ": " + here
	}
	rows := verdictTable{{line, cut(v.Subject, widestSubject), cmp.Or(cut(v.Value, widestValue), "-"), here}}
	if v.Do != "" {
		rows = append(rows, [4]string{"", "", "", "to do: " + v.Do})
	}
	return rows
}

func cut(text string, widest int) string {
	if runes := []rune(text); len(runes) > widest {
		return string(runes[:widest-1]) + "…"
	}
	return text
}

func (t verdictTable) print(to io.Writer) {
	var widths [3]int
	for _, row := range t {
		for i := range widths {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	here := max(leastHere, lineWidth-widths[0]-widths[1]-widths[2]-6)
	for _, row := range t {
		for i, part := range wrapped(row[3], here) {
			if i > 0 {
				row = [4]string{}
			}
			line := fmt.Sprintf("%*s  %-*s  %-*s  %s", widths[0], row[0], widths[1], row[1], widths[2], row[2], part)
			printable.Fprintf(to, "%s\n", strings.TrimRight(line, " "))
		}
	}
}

// wrapped breaks a text between words into lines of at most the given width, unless a word is longer.
func wrapped(text string, width int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}
