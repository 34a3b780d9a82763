package forecast

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/vicinity-proxy/vicinity/pkg/printable"
)

// Text writes a report for a terminal: all Services together, and then each, those first of which most leaves the zone.
// Of more than most Services it writes the first ones; 0: all.
func Text(w io.Writer, report *Report, most int) error {
	p := printer{w: w}
	p.f("%s and %s, forecast for new connections inside the cluster. %s\n\n", count(report.Nodes, "Node"),
		count(len(report.Services), "Service"), report.Demand)
	p.totals(report)
	if len(report.Services) > 0 {
		p.services(report, most)
		p.advice(report, most)
	}
	for i, one := range report.NotServed {
		if i == 0 {
			p.f("\nNot served:\n")
		}
		if most > 0 && i == most {
			p.f("  and %d more\n", len(report.NotServed)-most)
			break
		}
		p.f("  %s: %s\n", one.Service, one.Why)
	}
	return p.err
}

// printer writes what others cannot forge, and remembers the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(format string, args ...any) {
	if p.err == nil {
		if _, err := printable.Fprintf(p.w, format, args...); err != nil {
			p.err = fmt.Errorf("write the forecast: %w", err)
		}
	}
}

func (p *printer) table(rows func(line func(cells ...string))) {
	table := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	rows(func(cells ...string) {
		for i := range cells {
			cells[i] = printable.Text(cells[i])
		}
		if _, err := io.WriteString(table, strings.Join(cells, "\t")+"\n"); err != nil && p.err == nil {
			p.err = fmt.Errorf("write the forecast: %w", err)
		}
	})
	if err := table.Flush(); err != nil && p.err == nil {
		p.err = fmt.Errorf("write the forecast: %w", err)
	}
}

func (p *printer) totals(report *Report) {
	p.table(func(line func(...string)) {
		line("ALL SERVICES", "ON THE NODE", "IN THE ZONE", "IN THE REGION", "REFUSED", "BUSIEST ENDPOINT, TIMES THE MEAN")
		for _, total := range report.Settings {
			busiest := "-"
			if total.BusiestService != "" {
				busiest = fmt.Sprintf("%s  %s of %s", times(total.Busiest.Load), total.Busiest.Endpoint, total.BusiestService)
			}
			line(total.Setting, percent(total.Node), percent(total.Zone), percent(total.Region), percent(total.Refused), busiest)
		}
	})
}

// sorted returns the Services, those first of which most leaves the zone, then the most overloaded.
func sorted(services []Service) []Service {
	return slices.SortedStableFunc(slices.Values(services), func(a, b Service) int {
		now, then := &a.Outlooks[0], &b.Outlooks[0]
		return cmp.Or(cmp.Compare(then.leaving(), now.leaving()), cmp.Compare(then.Busiest.Load, now.Busiest.Load))
	})
}

// leaving is the part of all connections that crosses zones.
func (o *Outlook) leaving() float64 {
	if o.Busiest.Endpoint == "" {
		return 0
	}
	return (1 - o.Zone) * (1 - o.Refused)
}

func (p *printer) services(report *Report, most int) {
	p.f("\nEach Service: what stays in the zone, and the busiest endpoint, times the mean. " +
		"Those come first of which most leaves the zone now.\n\n")
	services := sorted(report.Services)
	p.table(func(line func(...string)) {
		head := []string{"SERVICE", "ENDPOINTS"}
		for _, setting := range report.Settings {
			head = append(head, strings.ToUpper(setting.Setting))
		}
		line(append(head, "BETTER")...)
		for i, service := range services {
			if most > 0 && i == most {
				break
			}
			cells := []string{service.Service, byZone(service.EndpointsByZone)}
			for _, outlook := range service.Outlooks {
				cells = append(cells, cell(&outlook))
			}
			better := "-"
			if service.Advice != nil {
				better = service.Advice.Setting
			}
			line(append(cells, better)...)
		}
	})
	if most > 0 && len(services) > most {
		p.f("and %d more; --top 0 prints all\n", len(services)-most)
	}
}

func cell(o *Outlook) string {
	switch {
	case o.Note != "":
		return "="
	case o.Busiest.Endpoint == "":
		return "refused"
	case o.Refused > 0:
		return fmt.Sprintf("%s %s, %s refused", percent(o.Zone), times(o.Busiest.Load), percent(o.Refused))
	}
	return percent(o.Zone) + " " + times(o.Busiest.Load)
}

// byZone writes how many endpoints there are in each zone, the most first.
func byZone(counts map[string]int) string {
	all, few := 0, 5
	for _, n := range counts {
		all += n
	}
	if len(counts) < 2 {
		return fmt.Sprint(all)
	}
	parts := slices.SortedFunc(maps.Values(counts), func(a, b int) int { return cmp.Compare(b, a) })
	words := make([]string, 0, few)
	for i, n := range parts {
		if i == few {
			words = append(words, "…")
			break
		}
		words = append(words, fmt.Sprint(n))
	}
	return fmt.Sprintf("%d = %s", all, strings.Join(words, "+"))
}

func (p *printer) advice(report *Report, most int) {
	written := 0
	for _, service := range sorted(report.Services) {
		if service.Advice == nil {
			continue
		}
		if most > 0 && written == most {
			break
		}
		written++
		p.f("\n%s: %s\n", service.Service, service.Advice.Sentence)
		for line := range strings.Lines(service.Advice.Set) {
			p.f("    %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	if written == 0 {
		p.f("\nNo setting keeps more connections in their zone without overloading endpoints, for any Service.\n")
	}
}

// Difference is one Service before and after a change.
type Difference struct {
	Service string   `json:"service"`
	Before  *Outlook `json:"before"` // null if it was not served
	After   *Outlook `json:"after"`
}

// Differences returns the Services of which something is different, those first that get worst.
func Differences(before, after *Report) []Difference {
	var list []Difference
	index := map[string]int{}
	for i := range before.Services {
		service := &before.Services[i]
		index[service.Service] = len(list)
		list = append(list, Difference{Service: service.Service, Before: &service.Outlooks[0]})
	}
	for i := range after.Services {
		service := &after.Services[i]
		at, known := index[service.Service]
		if !known {
			at = len(list)
			list = append(list, Difference{Service: service.Service})
		}
		list[at].After = &service.Outlooks[0]
	}
	list = slices.DeleteFunc(list, func(d Difference) bool {
		return d.Before != nil && d.After != nil && d.Before.Shares == d.After.Shares &&
			d.Before.Busiest.Load == d.After.Busiest.Load && slices.Equal(d.Before.Loads, d.After.Loads)
	})
	slices.SortStableFunc(list, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(b.worse().Refused, a.worse().Refused), cmp.Compare(b.worse().Zone, a.worse().Zone))
	})
	return list
}

// worse is how much more is refused, and how much less stays near.
func (d *Difference) worse() Shares {
	if d.Before == nil || d.After == nil {
		return Shares{}
	}
	return Shares{Refused: d.After.Refused - d.Before.Refused, Zone: d.Before.Zone - d.After.Zone}
}

// Comparison writes what is different between two forecasts, for a terminal.
func Comparison(w io.Writer, changes string, before, after *Report, most int) error {
	p := printer{w: w}
	p.f("Before and after: %s. %s\n\n", changes, after.Demand)
	p.table(func(line func(...string)) {
		line("ALL SERVICES", "ON THE NODE", "IN THE ZONE", "IN THE REGION", "REFUSED", "BUSIEST ENDPOINT, TIMES THE MEAN")
		for i, total := range []Total{before.Settings[0], after.Settings[0]} {
			line([]string{"before", "after"}[i], percent(total.Node), percent(total.Zone), percent(total.Region), percent(total.Refused),
				times(total.Busiest.Load)+"  "+total.BusiestService)
		}
	})
	differences := Differences(before, after)
	if len(differences) == 0 {
		p.f("\nNothing is different for any Service.\n")
		return p.err
	}
	p.f("\n")
	p.table(func(line func(...string)) {
		line("SERVICE", "ENDPOINTS", "IN THE ZONE", "REFUSED", "BUSIEST BEFORE", "", "BUSIEST AFTER", "")
		for i, d := range differences {
			if most > 0 && i == most {
				break
			}
			before, after := orNone(d.Before), orNone(d.After)
			line(d.Service, fmt.Sprintf("%d → %d", before.Used, after.Used), percent(before.Zone)+" → "+percent(after.Zone),
				percent(before.Refused)+" → "+percent(after.Refused),
				cmp.Or(before.Busiest.Endpoint, "-"), times(before.Busiest.Load), cmp.Or(after.Busiest.Endpoint, "-"), times(after.Busiest.Load))
		}
	})
	if most > 0 && len(differences) > most {
		p.f("and %d more; --top 0 prints all\n", len(differences)-most)
	}
	if same := len(after.Services) - len(differences); same > 0 {
		p.f("\n%s as before.\n", count(same, "other Service"))
	}
	return p.err
}

func orNone(o *Outlook) *Outlook {
	if o == nil {
		return &Outlook{}
	}
	return o
}

// count writes a number of things.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
