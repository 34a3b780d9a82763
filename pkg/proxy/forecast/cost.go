package forecast

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/pkg/printable"
)

// Traffic is how many bytes a second Services move, both ways, by namespace/name; of those without a name together under "".
type Traffic map[string]float64

// Sample is one series of what proxies counted: its labels, and its value.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// TrafficOf adds up bytes a second by the labels namespace and service.
func TrafficOf(samples []Sample) (Traffic, error) {
	traffic := Traffic{}
	for i, sample := range samples {
		if isRate := sample.Value >= 0 && !math.IsInf(sample.Value, 0); !isRate { // nor is NaN
			return nil, fmt.Errorf("sample %d: %v is no number of bytes a second", i+1, sample.Value)
		}
		name := ""
		if sample.Labels["service"] != "" {
			name = sample.Labels["namespace"] + "/" + sample.Labels["service"]
		}
		traffic[name] += sample.Value
	}
	if traffic.all() == 0 {
		return nil, errors.New("no byte was counted")
	}
	return traffic, nil
}

// ParseTraffic reads what Prometheus answers to an instant query of bytes a second.
func ParseTraffic(text []byte) (Traffic, error) {
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	found, isResult, err := samplesIn(converted)
	switch {
	case err != nil:
		return nil, err
	case !isResult:
		return nil, errors.New("a price needs bytes: the result of an instant query, such as " +
			"sum by (node, namespace, service) (rate(vicinity_service_traffic_bytes_total[1d])), or a folder of metrics")
	}
	samples := make([]Sample, len(found))
	for i, sample := range found {
		text, _ := sample.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("sample %d: %v is no number", i+1, sample.Value[1])
		}
		samples[i] = Sample{sample.Metric, value}
	}
	return TrafficOf(samples)
}

func (t Traffic) all() (sum float64) {
	for _, bytes := range t {
		sum += bytes
	}
	return sum
}

// Cost is what the bytes between zones would cost in a month under a setting.
type Cost struct {
	Setting string `json:"setting"`
	// Bytes go to other zones in a month, of all that are moved.
	Bytes float64 `json:"bytesToOtherZones"`
	Money float64 `json:"money"`
}

const (
	month    = 30 * 24 * 3600 // in seconds
	gigabyte = 1e9
)

// Price reckons what bytes to other zones would cost under each setting, at a price for each GB. Bytes of a Service follow its
// connections; those of no Service in the report follow all Services together.
func (r *Report) Price(traffic Traffic, perGB float64) {
	r.Costs, r.BytesInMonth, r.PerGB = nil, traffic.all()*month, perGB
	for _, total := range r.Settings {
		rest, crossing := traffic.all(), 0.0
		for i := range r.Services {
			service := &r.Services[i]
			at := slices.IndexFunc(service.Outlooks, func(o Outlook) bool { return o.Setting == total.Setting })
			if bytes := traffic[service.Service]; at >= 0 && bytes > 0 {
				rest, crossing = rest-bytes, crossing+bytes*service.Outlooks[at].OtherZones
			}
		}
		crossing += max(0, rest) * total.OtherZones
		r.Costs = append(r.Costs, Cost{total.Setting, crossing * month, crossing * month / gigabyte * perGB})
	}
}

// costs writes what each setting would cost.
func (p *printer) costs(report *Report) {
	if len(report.Costs) == 0 {
		return
	}
	p.f("\nTo other zones in a month, of %s in all, at %g for each GB:\n", gigabytes(report.BytesInMonth), report.PerGB)
	table := tabwriter.NewWriter(p.w, 0, 0, 3, ' ', tabwriter.AlignRight)
	for _, cost := range report.Costs {
		printable.Fprintf(table, "  %s\t%s\t%.2f\t\n", cost.Setting, gigabytes(cost.Bytes), cost.Money)
	}
	if p.err == nil {
		p.err = table.Flush()
	}
}

func gigabytes(bytes float64) string { return fmt.Sprintf("%.4g GB", bytes/gigabyte) }
