package forecast

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Text writes a report for a terminal: all Services together, and then each, in the order of sortServices. It writes
// at most limit Services; 0 means all.
func Text(w io.Writer, report *Report, limit int) error {
	p := printer{w: w}
	p.printf("%s and %s%s, forecast for new connections inside the cluster. %s\n\n", sanitize.Count(report.Nodes, "Node"),
		sanitize.Count(len(report.Services), "Service"), report.namespaceSuffix(), report.Demand)
	p.totals(report, settingsIn(report), report.Settings)
	p.costs(report, settingsIn(report), report.Costs)
	p.notes(report)
	p.onlyEvacuated(report, limit)
	if len(report.Services) > 0 {
		p.services(report, limit)
		p.advice(report, limit)
	}
	for i, notServed := range report.NotServed {
		if i == 0 {
			p.printf("\nNot served:\n")
		}
		if limit > 0 && i == limit {
			p.printf("  and %d more\n", len(report.NotServed)-limit)
			break
		}
		p.printf("  %s: %s\n", notServed.Service, notServed.Reason)
	}
	return p.err
}

func (r *Report) namespaceSuffix() string {
	if r.Namespace == "" {
		return ""
	}
	return " of the namespace " + r.Namespace
}

// selectionSuffix names the selected Services, if not all.
func (r *Report) selectionSuffix() string {
	if r.Service != "" {
		return " of " + r.Service
	}
	return r.namespaceSuffix()
}

// serviceOr returns the Service of the report, or else the given words and the namespace of the report.
func (r *Report) serviceOr(fallback string) string {
	if r.Service != "" {
		return r.Service
	}
	return fallback + r.namespaceSuffix()
}

// printer escapes what it writes, so that no name can forge a line, and keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, err := sanitize.Fprintf(p.w, format, args...)
		p.fail(err)
	}
}

// more writes how many items of a list are omitted.
func (p *printer) more(all, limit int) {
	if limit > 0 && all > limit {
		p.printf("and %d more; --top 0 prints all\n", all-limit)
	}
}

// fail keeps the first error.
func (p *printer) fail(err error) {
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("write the forecast: %w", err)
	}
}

func (p *printer) table(rows func(line func(cells ...string))) {
	table := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	rows(func(cells ...string) {
		for i := range cells {
			cells[i] = sanitize.Text(cells[i])
		}
		_, err := io.WriteString(table, strings.Join(cells, "\t")+"\n")
		p.fail(err)
	})
	p.fail(table.Flush())
}

func settingsIn(report *Report) []string {
	names := make([]string, len(report.Settings))
	for i := range report.Settings {
		names[i] = report.Settings[i].Setting
	}
	return names
}

// totals writes a line for each total, under a name. Numbers for which no Node has a label are "-".
func (p *printer) totals(report *Report, names []string, totals []Total) {
	reference := "TIMES THE MEAN"
	if len(report.Settings) < len(totals) {
		reference = "TIMES THE MEAN BEFORE"
	}
	p.table(func(line func(...string)) {
		line(report.heading(), "ON THE NODE", "IN THE ZONE", "IN THE REGION", "OTHER ZONES", "REFUSED", "BUSIEST ENDPOINT, "+reference)
		for i, total := range totals {
			busiest := "-"
			if total.BusiestService != "" {
				busiest = fmt.Sprintf("%s  %s of %s", times(total.Busiest.Load), total.Busiest.Endpoint, total.BusiestService)
			}
			zone, region, others := percent(total.Zone), percent(total.Region), percent(total.OtherZones)
			if report.NodesWithoutZone == report.Nodes || !total.hasZones() {
				zone, others = "-", "-"
			}
			if report.NodesWithoutRegion == report.Nodes || !total.hasZones() && total.Region == 0 {
				region = "-"
			}
			line(names[i], percent(total.Node), zone, region, others, percent(total.Refused), busiest)
		}
	})
}

// heading returns the heading of a column: the Services of a total.
func (r *Report) heading() string {
	switch {
	case r.Service != "":
		return r.Service
	case r.Namespace != "":
		return "SERVICES OF " + r.Namespace
	}
	return "ALL SERVICES"
}

// notes writes the missing parts of the forecast, and the notes about the whole cluster.
func (p *printer) notes(report *Report) {
	notes := slices.Concat(report.Incomplete, report.Notes)
	if unknown := report.Settings[0].UnknownZones; unknown > 0 && report.NodesWithoutZone < report.Nodes {
		notes = append(notes, fmt.Sprintf("%s of the connections come from, or go to, an unknown zone.", percent(unknown)))
	}
	for i, note := range notes {
		if i == 0 {
			p.printf("\n")
		}
		p.printf("%s\n", note)
	}
}

// sortServices returns the Services by the share that is refused, then by whether there are suggestions, then by the
// share that leaves the zone, then by overload.
func sortServices(services []Service) []Service {
	return slices.SortedStableFunc(slices.Values(services), func(a, b Service) int {
		projectionA, projectionB := &a.Projections[0], &b.Projections[0]
		return cmp.Or(cmp.Compare(projectionB.Refused, projectionA.Refused), cmp.Compare(b.suggestionRank(), a.suggestionRank()),
			cmp.Compare(projectionB.OtherZones, projectionA.OtherZones), cmp.Compare(projectionB.Busiest.Load, projectionA.Busiest.Load))
	})
}

// suggestionRank returns 1 if a setting can be fixed or improved.
func (s *Service) suggestionRank() int {
	if s.Advice == nil && len(s.Causes) == 0 {
		return 0
	}
	return 1
}

func (p *printer) services(report *Report, limit int) {
	p.printf("\nEach Service: the share that stays in the zone, and the load of the busiest endpoint as a multiple of the mean. Those " +
		"with the largest refused share come first, then those with suggestions, then those with the largest share that leaves the zone now.\n\n")
	services := sortServices(report.Services)
	p.table(func(line func(...string)) {
		head := []string{"SERVICE", "ENDPOINTS"}
		for _, setting := range report.Settings {
			head = append(head, strings.ToUpper(setting.Setting))
		}
		line(append(head, "BETTER")...)
		for i, service := range services {
			if limit > 0 && i == limit {
				break
			}
			cells := []string{service.Service, byZone(service.EndpointsByZone)}
			for _, projection := range service.Projections {
				cells = append(cells, cell(&projection))
			}
			better := "-"
			if service.Advice != nil {
				better = service.Advice.Setting
			} else if len(service.Causes) > 0 {
				better = "see below"
			}
			line(append(cells, better)...)
		}
	})
	p.more(len(services), limit)
}

func cell(p *Projection) string {
	switch {
	case p.Note != "":
		return "="
	case p.Busiest.Endpoint == "":
		return "refused"
	case p.Refused > 0:
		return fmt.Sprintf("%s %s, %s refused", inZone(p), times(p.Busiest.Load), percent(p.Refused))
	}
	return inZone(p) + " " + times(p.Busiest.Load)
}

// inZone formats the share that stays in the zone; "-" if no zone is known.
func inZone(p *Projection) string {
	if !p.hasZones() {
		return "-"
	}
	return percent(p.Zone)
}

// byZone formats the number of endpoints in each zone, the largest first.
func byZone(counts map[string]int) string {
	total, maxZones := 0, 5
	for _, n := range counts {
		total += n
	}
	if len(counts) < 2 {
		return fmt.Sprint(total)
	}
	sortedCounts := slices.SortedFunc(maps.Values(counts), func(a, b int) int { return cmp.Compare(b, a) })
	words := make([]string, 0, maxZones)
	for i, n := range sortedCounts {
		if i == maxZones {
			words = append(words, "…")
			break
		}
		words = append(words, fmt.Sprint(n))
	}
	return fmt.Sprintf("%d = %s", total, strings.Join(words, "+"))
}

// advice writes problems, and then better settings. Services with the same advice are named together.
func (p *printer) advice(report *Report, limit int) {
	withSuggestions := slices.DeleteFunc(sortServices(report.Services), func(s Service) bool { return s.suggestionRank() == 0 })
	shown := withSuggestions
	if limit > 0 && len(withSuggestions) > limit {
		shown = withSuggestions[:limit]
	}
	for _, group := range groupByAdvice(shown) {
		p.printf("\n")
		first, names := &group[0], make([]string, len(group))
		for i := range group {
			names[i] = group[i].Service
		}
		p.causes(strings.Join(names, ", "), first.Causes)
		if first.Advice == nil {
			continue
		}
		for i := range group {
			p.printf("%s: %s\n", group[i].Service, group[i].Advice.Sentence)
		}
		for line := range strings.Lines(first.Advice.Patch) {
			p.printf("    %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	if len(shown) < len(withSuggestions) {
		p.printf("\nand %s; --top 0 prints all\n", sanitize.Count(len(withSuggestions)-len(shown), "more Service"))
	}
	if len(withSuggestions) == 0 {
		p.printf("\nNo other setting keeps more connections in their zone without overloading endpoints, for %s.\n",
			report.serviceOr("any Service"))
	}
}

// groupByAdvice returns groups of Services with the same causes and the same advice, in the order of their first ones.
func groupByAdvice(services []Service) [][]Service {
	var groups [][]Service
	index := map[string]int{}
	for _, service := range services {
		var key strings.Builder
		for _, cause := range service.Causes {
			key.WriteString(cause.Sentence + "\n")
		}
		if service.Advice != nil {
			key.WriteString("\n" + service.Advice.Patch)
		}
		position, known := index[key.String()]
		if !known {
			position = len(groups)
			index[key.String()] = position
			groups = append(groups, nil)
		}
		groups[position] = append(groups[position], service)
	}
	return groups
}

func (p *printer) causes(services string, causes []Problem) {
	for _, cause := range causes {
		p.printf("%s: %s\n", services, cause.Sentence)
	}
}

// comparison is one Service before and after a change. No change adds or removes a Service.
type comparison struct {
	service       *Service // after the change
	before, after *Projection
}

// differences returns the Services that differ, the most degraded first.
func differences(before, after *Report) (list []comparison) {
	for i := range after.Services {
		service := &after.Services[i]
		old, current := &before.Services[i].Projections[0], &service.Projections[0]
		if old.Shares != current.Shares || old.Busiest.Load != current.Busiest.Load || !slices.Equal(old.Loads, current.Loads) {
			list = append(list, comparison{service, old, current})
		}
	}
	slices.SortStableFunc(list, func(a, b comparison) int {
		return cmp.Or(cmp.Compare(b.refusedIncrease(), a.refusedIncrease()), cmp.Compare(b.leftZoneIncrease(), a.leftZoneIncrease()),
			cmp.Compare(b.loadIncrease(), a.loadIncrease()))
	})
	return list
}

// The increases after the change: of the share that is refused, of the share that leaves the zone, and of the load of
// the busiest endpoint.
func (c *comparison) refusedIncrease() float64  { return c.after.Refused - c.before.Refused }
func (c *comparison) leftZoneIncrease() float64 { return c.before.Zone - c.after.Zone }
func (c *comparison) loadIncrease() float64     { return c.after.Busiest.Load - c.before.Busiest.Load }

// Comparison writes the differences between two forecasts for a terminal.
func Comparison(w io.Writer, changes string, before, after *Report, limit int) error {
	p := printer{w: w}
	p.printf("Before and after%s: %s. %s\n\n", after.selectionSuffix(), changes, after.Demand)
	p.totals(after, []string{"before", "after"}, []Total{before.Settings[0], after.Settings[0]})
	p.costs(after, []string{"before", "after"}, slices.Concat(before.Costs, after.Costs))
	p.notes(after)
	p.onlyEvacuated(after, limit)
	different := differences(before, after)
	if len(different) == 0 {
		p.printf("\nNothing is different for %s.\n", after.serviceOr("any Service"))
		return p.err
	}
	p.printf("\n")
	p.table(func(line func(...string)) {
		line("SERVICE", "ENDPOINTS USED", "IN THE ZONE", "REFUSED", "BUSIEST BEFORE", "", "BUSIEST AFTER", "")
		for i, d := range different {
			if limit > 0 && i == limit {
				break
			}
			before, after := d.before, d.after
			line(d.service.Service, fmt.Sprintf("%d → %d", before.Used, after.Used), inZone(before)+" → "+inZone(after),
				percent(before.Refused)+" → "+percent(after.Refused),
				cmp.Or(before.Busiest.Endpoint, "-"), times(before.Busiest.Load), cmp.Or(after.Busiest.Endpoint, "-"), times(after.Busiest.Load))
		}
	})
	p.more(len(different), limit)
	if same := len(after.Services) - len(different); same > 0 {
		p.printf("\n%s unchanged.\n", sanitize.Count(same, "other Service"))
	}
	p.newlyRefused(different, limit)
	return p.err
}

// newlyRefused writes why connections are refused that were not refused before.
func (p *printer) newlyRefused(different []comparison, limit int) {
	for i, d := range different {
		if d.refusedIncrease() <= 0 || limit > 0 && i == limit {
			return // the most degraded are first
		}
		p.printf("\n")
		p.causes(d.service.Service, d.service.Causes)
	}
}
