package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// page prints for a person, in colour if it is a terminal.
type page struct {
	w        io.Writer
	coloured bool
}

func newPage(file *os.File) *page {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return &page{w: file, coloured: err == nil && os.Getenv("NO_COLOR") == ""} // https://no-color.org
}

// ink is an ANSI attribute.
type ink string

const (
	bold  ink = "1"
	dim   ink = "2"
	red   ink = "31"
	green ink = "32"
	cyan  ink = "1;36"
)

func (p *page) ink(colour ink, text string) string {
	if !p.coloured || text == "" {
		return text
	}
	return "\x1b[" + string(colour) + "m" + text + "\x1b[0m"
}

func (p *page) print(format string, args ...any) {
	fmt.Fprintf(p.w, format+"\n", args...)
}

func (p *page) headline(text string) {
	p.print("\n%s\n", p.ink(cyan, "━━ "+text+" "+strings.Repeat("━", max(3, 76-len(text)))))
}

// quote prints the output of a program, with its command.
func (p *page) quote(command, output string) {
	p.print("  %s", p.ink(bold, "$ "+command))
	for line := range strings.Lines(strings.TrimRight(output, "\n")) {
		line = strings.TrimRight(line, "\n")
		if line != "" {
			line = "  " + p.ink(dim, line)
		}
		p.print("%s", line)
	}
}
