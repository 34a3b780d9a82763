package main

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

const (
	zoneColumn = 8
	webColumn  = 9
	loadColumn = 42
	barOfMean  = 10 // length of the bar of a mean
)

// printLoads draws the load of each web pod under two settings, side by side.
func printLoads(p *page, before, after load) {
	row := func(zone, name string, format func(*page, load) string) {
		gap := loadColumn - utf8.RuneCountInString(format(&page{}, before)) // without colour
		p.print("  %s%-*s%s%*s%s", p.ink(bold, fmt.Sprintf("%-*s", zoneColumn, zone)), webColumn, name,
			format(p, before), gap, "", format(p, after))
	}
	row("", "", func(p *page, l load) string { return p.ink(bold, l.name) })
	zone := ""
	for i, web := range after.webs {
		shown := web.zone
		if shown == zone {
			shown = ""
		}
		zone = web.zone
		row(shown, web.web.Name, func(p *page, l load) string { return l.bar(p, i) })
	}
	p.print("")
	row("", "busiest", func(p *page, l load) string { return l.printBusiest(p) })
	row("", "in zone", func(_ *page, l load) string { return fmt.Sprintf("%5.0f %% stayed in their zone", 100*l.stayedShare()) })
	p.print("\n  %s\n", p.ink(dim, fmt.Sprintf("%*s█ is a tenth of the mean, %.0f; ▒ is more than %g times the mean",
		zoneColumn+webColumn, "", after.mean(), bound)))
}

// bar draws the load of a web pod.
func (l load) bar(p *page, web int) string {
	length := int(math.Round(l.relativeLoad(web) * barOfMean))
	within := min(length, int(math.Round(bound*barOfMean)))
	return fmt.Sprintf("%5d  ", l.counts[web]) + p.ink(green, strings.Repeat("█", within)) + p.ink(red, strings.Repeat("▒", length-within))
}

func (l load) printBusiest(p *page) string {
	times := l.relativeLoad(l.busiest())
	if times > l.maxByChance() {
		return p.ink(red, fmt.Sprintf("✗ %.2f times the mean", times))
	}
	return p.ink(green, fmt.Sprintf("✓ %.2f times the mean%s", times, l.byChance()))
}
