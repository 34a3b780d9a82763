package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prometheus "github.com/prometheus/common/model"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
)

const (
	// bytesConnections is the number of connections of each client, with and without the annotation.
	bytesConnections = 100
	// countTimeout bounds the time until the proxies have counted the entries that the kernel deleted.
	countTimeout = time.Minute
	// lastPackets is the maximum delay of a connection's last packets. A packet that arrives after its entry was deleted
	// would start another entry.
	lastPackets = 500 * time.Millisecond
)

// traffic is the proxies' count of all traffic; crossing is the part between zones.
type traffic struct{ connections, bytes, crossing float64 }

func (t traffic) since(before traffic) traffic {
	return traffic{t.connections - before.connections, t.bytes - before.bytes, t.crossing - before.crossing}
}

// playBytes is the last act: the proxies' counts of traffic between zones without and with the annotation. It returns
// the result and the mistakes.
func (s *setup) playBytes(ctx context.Context, p *page) (result string, mistakes []string, err error) {
	p.headline("7. The owner sets the zone key, and no byte leaves its zone")
	p.print("  The proxies run with --traffic-accounting=totals: they count the bytes of connections, also between zones, without " +
		"additional rules in")
	p.print("  the kernel. First the Service has no annotation. Then its owner adds")
	p.print("  vicinity.dev/topology-keys: %q", topologyKeys)
	without, failures, err := s.countBytes(ctx, "", func(location) []location { return s.locations })
	if err != nil {
		return "", nil, err
	}
	with, moreFailures, err := s.countBytes(ctx, topologyKeys, func(from location) []location { return s.expected(from.zone, "") })
	if err != nil {
		return "", nil, err
	}
	all := bytesConnections * len(s.locations)
	p.print("\n  /metrics of all proxies for %d connections without the annotation and %d with it, including headers:\n", all, all)
	p.print("  %s", p.ink(dim, fmt.Sprintf("%-24s%12s%18s", "", "bytes moved", "to other zones")))
	p.print("  %-24s%12.0f%s", "without an annotation", without.bytes, p.ink(red, fmt.Sprintf("%18.0f", without.crossing)))
	p.print("  %-24s%12.0f%s", "with it", with.bytes, p.ink(green, fmt.Sprintf("%18.0f", with.crossing)))
	for _, err := range append(failures, moreFailures...) {
		mistakes = append(mistakes, fmt.Sprintf("act 7. a connection failed: %v", err))
	}
	for _, sentence := range bytesMistakes(without, with) {
		mistakes = append(mistakes, "act 7. "+sentence)
	}
	result = fmt.Sprintf("Of %.0f bytes %.0f %% went to other zones without the annotation, "+
		"and none of %.0f with it.",
		without.bytes, 100*without.crossing/without.bytes, with.bytes)
	return result, mistakes, nil
}

// bytesMistakes returns, as sentences, the counts that contradict the annotation.
func bytesMistakes(without, with traffic) []string {
	var found []string
	want := 1 - 1/float64(len(zoneLetters))
	noise := deviations * math.Sqrt(want*(1-want)/without.connections)
	if got := without.crossing / without.bytes; without.bytes == 0 {
		found = append(found, "without an annotation the proxies counted no bytes")
	} else if math.Abs(got-want) > noise {
		found = append(found, fmt.Sprintf("without an annotation %.0f %% of the bytes went to other zones, want %.0f %%",
			100*got, 100*want))
	}
	if with.crossing > 0 || with.bytes == 0 {
		found = append(found, fmt.Sprintf("with the annotation %.0f of %.0f bytes went to other zones", with.crossing, with.bytes))
	}
	return found
}

// countBytes writes the Service with some topology keys, waits until all connections go to the expected web pods, and
// makes more connections. It returns the proxies' counts of those and the failures.
func (s *setup) countBytes(ctx context.Context, keys string, expected func(from location) []location) (traffic, []error, error) {
	if err := s.writeServiceWith(keys, unbounded); err != nil {
		return traffic{}, nil, err
	}
	load := loadTopology{clients: s.locations, webs: s.locations}
	for _, from := range s.locations {
		if err := load.dialUntilAll(ctx, from, expected(from)); err != nil {
			return traffic{}, nil, err
		}
	}
	before, err := s.waitForCounts(ctx)
	if err != nil {
		return traffic{}, nil, err
	}
	var failed []error
	for _, from := range s.locations {
		_, failures := load.dial(ctx, from, bytesConnections, frontends)
		failed = append(failed, failures...)
	}
	after, err := s.waitForCounts(ctx)
	return after.since(before), failed, err
}

// waitForCounts deletes all conntrack entries, which the kernel would delete two minutes after the connections ended,
// and waits until the proxies have counted them.
func (s *setup) waitForCounts(ctx context.Context) (traffic, error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	counted, err := s.traffic(ctx)
	expected := counted.connections
	for err == nil {
		time.Sleep(lastPackets)
		deleted := 0
		for _, location := range s.locations {
			count, err := deleteEntries(ctx, location)
			if err != nil {
				return traffic{}, fmt.Errorf("delete conntrack entries on %s: %w", location.node.Name, err)
			}
			deleted += count
		}
		expected += float64(deleted)
		counted, err = s.traffic(ctx)
		switch {
		case err != nil:
		case deleted == 0 && counted.connections >= expected:
			return counted, nil
		case ctx.Err() != nil:
			err = fmt.Errorf("%.0f connections ended, but after %s the proxies have counted %.0f", expected, countTimeout, counted.connections)
		}
	}
	return traffic{}, err
}

// deleteEntries deletes all conntrack entries with a translated destination on a node. It returns how many of them were
// replied connections to the Service.
func deleteEntries(ctx context.Context, at location) (replied int, err error) {
	var table *conntrack.Conn
	if err := at.node.Do(func() (err error) { table, err = conntrack.Dial(); return err }); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, table.Close()) }()
	var entries []conntrack.Entry
	translated := conntrack.Filter{Status: conntrack.DestinationNAT, Mask: conntrack.DestinationNAT}
	_, err = table.Dump(ctx, translated, func(e *conntrack.Entry) bool { entries = append(entries, *e); return true })
	if err != nil && !errors.Is(err, conntrack.ErrInterrupted) {
		return 0, err
	}
	for i := range entries {
		deleted, err := table.Delete(&entries[i])
		if err != nil {
			return replied, err
		}
		if deleted && entries[i].Status&conntrack.SeenReply != 0 && isFrontend(entries[i].OrigDst()) {
			replied++
		}
	}
	return replied, nil
}

func isFrontend(origDst netip.AddrPort) bool {
	return origDst == frontends[0] || origDst == frontends[1]
}

// traffic returns the sum of all proxies' counts.
func (s *setup) traffic(ctx context.Context) (sum traffic, err error) {
	for _, proxy := range s.proxies {
		text, err := proxy.page(ctx, metricsAddress, "/metrics")
		if err != nil {
			return traffic{}, err
		}
		parser := expfmt.NewTextParser(prometheus.LegacyValidation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
		if err != nil {
			return traffic{}, fmt.Errorf("parse /metrics of the proxy on %s: %w", proxy.node.Name, err)
		}
		sum.connections += sumOfSeries(families["vicinity_connections_total"], "outcome", "replied")
		sum.bytes += sumOfSeries(families["vicinity_traffic_bytes_total"], "", "")
		sum.crossing += sumOfSeries(families["vicinity_traffic_bytes_total"], "locality", "other_zone")
	}
	return sum, nil
}

// sumOfSeries returns the sum of a counter's series with a label value, or of all series if name is empty.
func sumOfSeries(family *dto.MetricFamily, name, value string) (sum float64) {
	for _, series := range family.GetMetric() {
		matches := func(label *dto.LabelPair) bool { return label.GetName() == name && label.GetValue() == value }
		if name == "" || slices.ContainsFunc(series.GetLabel(), matches) {
			sum += series.GetCounter().GetValue()
		}
	}
	return sum
}
