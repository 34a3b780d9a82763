package forecast

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// costReport returns a report with two Services under two settings, with fixed shares that go to other zones.
func costReport() *Report {
	projections := func(now, sameZone float64) []Projection {
		return []Projection{{Setting: "now", Shares: Shares{OtherZones: now}}, {Setting: "PreferSameZone", Shares: Shares{OtherZones: sameZone}}}
	}
	return &Report{
		Settings: []Total{{Setting: "now", Shares: Shares{OtherZones: 0.6}}, {Setting: "PreferSameZone", Shares: Shares{OtherZones: 0.1}}},
		Services: []Service{{Service: "shop/api", Projections: projections(0.5, 0)}, {Service: "shop/web", Projections: projections(0.7, 0.2)}},
	}
}

func TestBytesOfAServiceFollowItsConnections(t *testing.T) {
	const text = `{"status": "success", "data": {"resultType": "vector", "result": [
		{"metric": {"node": "a", "namespace": "shop", "service": "api"}, "value": [0, "1000"]},
		{"metric": {"node": "b", "namespace": "shop", "service": "api"}, "value": [0, "1000"]},
		{"metric": {"node": "a", "namespace": "", "service": ""}, "value": [0, "100"]},
		{"metric": {"node": "a", "namespace": "shop", "service": "gone"}, "value": [0, "400"]}]}}`
	samples, err := ParseSamples([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	traffic, err := TrafficOf(samples)
	if err != nil {
		t.Fatal(err)
	}
	report := costReport()
	report.EstimateCost(traffic, 0.02)
	// 2,000 B/s of shop/api, and 100 B/s of Services without a name; shop/gone has no forecast.
	want := []Cost{
		{"now", (1000 + 60) * month, (1000 + 60) * month / 1e9 * 0.02}, {"PreferSameZone", 10 * month, 10 * month / 1e9 * 0.02},
	}
	if diff := cmp.Diff(want, report.Costs, cmpopts.EquateApprox(1e-9, 0)); diff != "" || report.BytesInMonth != 2100*month {
		t.Errorf("costs of %v bytes (-want +got):\n%s", report.BytesInMonth, diff)
	}
	var page bytes.Buffer
	p := printer{w: &page}
	p.costs(report, settingsIn(report), report.Costs)
	for _, line := range []string{
		"To other zones per month, of 5.44 GB in total, at 0.02 per GB:", "now   2.75 GB   0.05", "PreferSameZone   0.03 GB   0.00",
	} {
		if !strings.Contains(page.String(), line) {
			t.Errorf("the text lacks %q:\n%s", line, &page)
		}
	}
}

func TestNoBytesIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"weights":   "{zone-a: 1}",
		"nothing":   "[]",
		"zero":      `[{"metric": {"node": "a"}, "value": [0, "0"]}]`,
		"negative":  `[{"metric": {"node": "a"}, "value": [0, "-1"]}]`,
		"no number": `[{"metric": {"node": "a"}, "value": [0, "NaN"]}]`,
		"a word":    `[{"metric": {"node": "a"}, "value": [0, "x"]}]`,
	} {
		samples, err := ParseSamples([]byte(text))
		if err == nil {
			_, err = TrafficOf(samples)
		}
		if err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}
