//go:build linux

package flows

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Text writes a report as a table with a row per Service or, with byEndpoint, per endpoint of each Service. It writes
// at most the given number of rows; 0 means all.
func Text(to io.Writer, report *Report, byEndpoint bool, limit int) error {
	table := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	rows := serviceRows(report)
	if byEndpoint {
		rows = endpointRows(report)
	}
	shown := len(rows) - 1
	if limit > 0 {
		shown = min(shown, limit)
	}
	for _, row := range rows[:shown+1] {
		for _, cell := range row[:len(row)-1] {
			sanitize.Fprintf(table, "%s\t", cell)
		}
		sanitize.Fprintf(table, "%s\n", row[len(row)-1])
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write connections: %w", err)
	}
	if omitted := len(rows) - 1 - shown; omitted > 0 {
		sanitize.Fprintf(to, "and %d more; --top 0 shows all\n", omitted)
	}
	if len(report.Services) > 0 && !report.CountsBytes {
		sanitize.Fprintf(to, "Bytes are unknown: conntrack does not count them (net.netfilter.nf_conntrack_acct is 0).\n")
	}
	return nil
}

func serviceRows(report *Report) [][]string {
	head := []string{"SERVICE", "UNANSWERED", "OPEN"}
	for _, proximity := range serviceindex.Proximities {
		head = append(head, strings.ToUpper(strings.ReplaceAll(proximity.String(), "_", "-")))
	}
	rows := [][]string{append(head, "ENDING", "SENT", "RECEIVED")}
	for i := range report.Services {
		service := &report.Services[i]
		row := []string{service.Service, fmt.Sprint(service.Unreplied), fmt.Sprint(service.Established)}
		for _, proximity := range serviceindex.Proximities {
			row = append(row, fmt.Sprint(service.ByLocality[proximity.String()]))
		}
		rows = append(rows, append(row, fmt.Sprint(service.Ending), report.bytes(service.Sent), report.bytes(service.Received)))
	}
	return rows
}

func endpointRows(report *Report) [][]string {
	rows := [][]string{{"ENDPOINT", "NODE", "ZONE", "LOCALITY", "TIER", "UNANSWERED", "OPEN", "ENDING", "SENT", "RECEIVED"}}
	for i := range report.Services {
		for _, endpoint := range report.Services[i].Endpoints {
			name := endpoint.Endpoint + "/" + endpoint.Protocol
			if endpoint.Removed {
				name += " (gone)"
			}
			rows = append(rows, []string{
				name, cmp.Or(endpoint.Node, "-"), cmp.Or(endpoint.Zone, "-"), endpoint.Locality, endpoint.Tier,
				fmt.Sprint(endpoint.Unreplied), fmt.Sprint(endpoint.Established), fmt.Sprint(endpoint.Ending),
				report.bytes(endpoint.Sent), report.bytes(endpoint.Received),
			})
		}
	}
	return rows
}

// bytes formats a number of bytes with a decimal unit and three significant digits; "-" if conntrack does not count
// bytes.
func (r *Report) bytes(n uint64) string {
	if !r.CountsBytes {
		return "-"
	}
	units := []string{"B", "kB", "MB", "GB", "TB"}
	value, unit := float64(n), 0
	for value >= 1000 && unit < len(units)-1 {
		value, unit = value/1000, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.3g %s", value, units[unit])
}
