package forecast

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Traffic is the bytes per second of Services in both directions, by namespace/name; the bytes of those without a name
// are summed up under "".
type Traffic map[string]float64

// TrafficOf sums bytes per second by the labels namespace and service.
func TrafficOf(samples []Sample) (Traffic, error) {
	traffic := Traffic{}
	for i, sample := range samples {
		if isRate := sample.Value >= 0 && !math.IsInf(sample.Value, 0); !isRate { // NaN is not a rate either
			return nil, fmt.Errorf("sample %d: %v is not a number of bytes a second", i+1, sample.Value)
		}
		traffic[sample.service()] += sample.Value
	}
	if traffic.total() == 0 {
		return nil, errors.New("no bytes were counted")
	}
	return traffic, nil
}

// total sums in a fixed order, because sums of fractions depend on it.
func (t Traffic) total() (sum float64) {
	for _, service := range slices.Sorted(maps.Keys(t)) {
		sum += t[service]
	}
	return sum
}

// Cost is the cost of the bytes between zones in a month under a setting.
type Cost struct {
	Setting string `json:"setting"`
	// Bytes is how many of all bytes go to other zones in a month.
	Bytes float64 `json:"bytesToOtherZones"`
	Money float64 `json:"money"`
}

const (
	month    = 30 * 24 * 3600 // in seconds
	gigabyte = 1e9
)

// EstimateCost estimates the cost of the bytes of the report's Services to other zones under each setting, at a price
// per GB. The bytes of a Service are split like its connections. A report of all Services includes the bytes without a
// Service name, which are split like all connections.
func (r *Report) EstimateCost(traffic Traffic, perGB float64) {
	unnamed, all := 0.0, 0.0
	if r.Namespace == "" && r.Service == "" {
		unnamed = traffic[""]
	}
	for i := range r.Services {
		all += traffic[r.Services[i].Service]
	}
	r.Costs, r.BytesInMonth, r.PerGB = nil, (all+unnamed)*month, perGB
	for i, total := range r.Settings {
		crossing := unnamed * total.OtherZones
		for s := range r.Services {
			service := &r.Services[s]
			crossing += traffic[service.Service] * service.Projections[i].OtherZones
		}
		r.Costs = append(r.Costs, Cost{total.Setting, crossing * month, crossing * month / gigabyte * perGB})
	}
}

// costs writes costs, a line for each with its name.
func (p *printer) costs(report *Report, names []string, costs []Cost) {
	switch {
	case len(costs) == 0:
		return
	case report.BytesInMonth == 0:
		p.printf("\nTo other zones per month: nothing, because no bytes of %s were measured.\n", report.serviceOr("Services"))
		return
	}
	unit := unitOf(report.BytesInMonth)
	p.printf("\nTo other zones per month, of %s in total, at %g per GB:\n", unit.text(report.BytesInMonth), report.PerGB)
	table := tabwriter.NewWriter(p.w, 0, 0, 3, ' ', tabwriter.AlignRight)
	for i, cost := range costs {
		sanitize.Fprintf(table, "  %s\t%s\t%.2f\t\n", names[i], unit.text(cost.Bytes), cost.Money)
	}
	if p.err == nil {
		p.err = table.Flush()
	}
}

// byteUnit is the unit of all numbers of a table, so that they can be compared.
type byteUnit struct {
	name  string
	bytes float64
}

// unitOf returns the largest unit that is not larger than a number.
func unitOf(value float64) byteUnit {
	for _, unit := range []byteUnit{{"PB", 1e15}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}} {
		if value >= unit.bytes {
			return unit
		}
	}
	return byteUnit{"kB", 1e3}
}

func (u byteUnit) text(bytes float64) string { return fmt.Sprintf("%.2f %s", bytes/u.bytes, u.name) }

// ParsePrice parses a price of a gigabyte, such as 0.01/GB.
func ParsePrice(text string) (perGB float64, err error) {
	number, isPerGB := strings.CutSuffix(text, "/GB")
	perGB, err = strconv.ParseFloat(number, 64)
	if isPrice := err == nil && isPerGB && perGB > 0 && perGB < 1e6; !isPrice {
		return 0, fmt.Errorf("%q is not a price of a gigabyte, such as 0.01/GB", text)
	}
	return perGB, nil
}
