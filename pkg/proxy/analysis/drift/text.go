package drift

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/competing"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// maxShown is the maximum number of differences, and of invalid objects, in the text.
const maxShown = 20

// Text writes the state of a node for people. address is where the proxy's page was requested.
func Text(to io.Writer, node *Node, address string) error {
	table := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	p := printer{table}
	if node.Proxy == nil {
		p.line("proxy", "no response from %s", address)
	} else {
		p.proxy(node)
	}
	p.kernel(&node.Kernel)
	p.list("refused", len(node.Invalid), func(i int) string { return node.Invalid[i].text() })
	if node.Missing != "" {
		p.line("missing", "%s", node.Missing)
	}
	p.line("other proxies", "%s", otherProxiesText(node.Kernel.OtherProxies))
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}

// printer writes lines with a label.
type printer struct{ to io.Writer }

func (p printer) line(label, format string, args ...any) {
	sanitize.Fprintf(p.to, "%s\t%s\n", label, fmt.Sprintf(format, args...))
}

// list writes a line for each of the first maxShown items, with a label on the first line.
func (p printer) list(label string, count int, text func(int) string) {
	for i := range min(count, maxShown) {
		p.line(label, "%s", text(i))
		label = ""
	}
	if count > maxShown {
		p.line("", "and %d more; -o json has all", count-maxShown)
	}
}

// proxy writes the state that the proxy reports.
func (p printer) proxy(node *Node) {
	summary := node.Proxy
	p.line("proxy", "node %s, version %s, since %s", summary.Node, summary.Version, sinceText(summary.Began))
	switch {
	case summary.InSyncSince != nil:
		p.line("in sync", "since %s, according to the proxy", sinceText(*summary.InSyncSince))
	case summary.LastError != "":
		p.line("in sync", "no: %s", summary.LastError)
	default:
		p.line("in sync", "no: %s", sanitize.CountOf(summary.Waiting, "Service is queued", "Services are queued"))
	}
	if summary.Newest != nil {
		p.line("newest change", "%s; Services decided: %d, in %s", sinceText(summary.Newest.At), summary.Newest.Services,
			time.Duration(summary.Newest.Seconds*float64(time.Second)).Round(10*time.Microsecond))
	}
	p.line("Services", "%s", node.servicesText())
	p.line("not applied", "%s invalid; %s rejected by the kernel; %s contested; %s",
		sanitize.CountOf(summary.InvalidObjects, "object is", "objects are"), sanitize.Count(summary.RejectedByKernel, "Service"),
		sanitize.CountOf(summary.Contested, "frontend is", "frontends are"),
		sanitize.CountOf(summary.Waiting, "Service is queued", "Services are queued"))
	nodes := "no Service needs their labels"
	if summary.NodeTopology != "" {
		nodes = "their labels come from " + explain.TopologySourceText(summary.NodeTopology)
	}
	if summary.Manifests == "" {
		p.line("API server", "%s", interruptionsText(summary.Interruptions))
		p.line("other nodes", "%s", nodes)
	} else {
		p.line("API server", "not used: the manifests are in %s", summary.Manifests)
		p.line("other nodes", "%s in the manifests", nodes)
	}
	if summary.IneligibleReason != "" {
		p.line("eligible", "no, load balancers must not use this node: %s", summary.IneligibleReason)
	}
	p.list("sysctls", len(summary.KernelSettings), func(i int) string { return settingText(&summary.KernelSettings[i]) })
	p.reachability(summary)
	p.xds(summary.XDS)
}

// settingText describes a kernel setting.
func settingText(s *status.KernelSetting) string {
	if s.UnmetSince == nil {
		return fmt.Sprintf("%s has the desired value; another program changed it, and it was restored %s, last %s",
			s.Name, times(s.Restored), sinceText(*s.RestoredAt))
	}
	text := fmt.Sprintf("%s is %d and should be %d", s.Name, s.Value, s.Desired)
	if s.Impact != "" {
		text += ": " + s.Impact
	}
	return text + "; " + s.Remedy
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return sanitize.Count(n, "time")
}

// reachability writes which nodes are unreachable.
func (p printer) reachability(proxy *status.Summary) {
	summary := proxy.Reachability
	if summary == nil {
		return
	}
	var lines []string
	for _, family := range model.Families {
		switch state := summary.Families[family.String()]; {
		case state.IsolatedSince != nil:
			lines = append(lines, fmt.Sprintf("%s: this node is isolated: no other node has replied since %s, so none is considered unreachable",
				family, sinceText(*state.IsolatedSince)))
		case state.HasNoControl:
			lines = append(lines, fmt.Sprintf("%s: one other node replies. If it stops, that proves nothing: there is neither a third node nor "+
				"an API server elsewhere to show whether this node is isolated", family))
		case state.WithBaseline+state.WithoutBaseline > 0:
			line := fmt.Sprintf("%s: %s", family, sanitize.CountOf(state.WithBaseline, "other node replies", "other nodes reply"))
			if state.WithoutBaseline > 0 {
				line += fmt.Sprintf("; %d never replied to a probe, so their failure would not be detected: open TCP port 9, or that of "+
					"/healthz, between nodes", state.WithoutBaseline)
			}
			lines = append(lines, line)
		}
	}
	p.list("reachable", len(lines), func(i int) string { return lines[i] })
	sentences := proxy.UnreachableSentences()
	p.list("unreachable", len(sentences), func(i int) string { return sentences[i] })
}

// xds writes which clients get endpoints by xDS.
func (p printer) xds(summary *status.XDS) {
	if summary == nil {
		return
	}
	p.list("xDS", len(summary.Addresses), func(i int) string {
		if address := summary.Addresses[i]; address.Error != "" {
			return fmt.Sprintf("not served at %s: %s", address.Address, address.Error)
		}
		return "served at " + summary.Addresses[i].Address
	})
	p.line("", "clients: %d, streams: %d, names: %d", len(summary.Clients), summary.Streams, summary.Names)
	p.list("", len(summary.Clients), func(i int) string {
		client := summary.Clients[i]
		text := fmt.Sprintf("%s: streams: %d, names: %d", cmp.Or(client.Address, "all clients of the socket"), client.Streams, client.Names)
		if client.UnreadBytes > 0 {
			text += fmt.Sprintf("; unread bytes: %d", client.UnreadBytes)
		}
		return text
	})
	rejected := 0
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(summary.Rejected)) {
		rejected += summary.Rejected[reason]
		reasons = append(reasons, fmt.Sprintf("%s %d", reason, summary.Rejected[reason]))
	}
	text := fmt.Sprintf("since the start: rejected: %d", rejected)
	if len(reasons) > 0 {
		text += " (" + strings.Join(reasons, ", ") + ")"
	}
	p.line("", "%s; unknown names: %d; responses that clients rejected: %d", text, summary.UnknownNames, summary.RejectedResponses)
}

// kernel writes the differences.
func (p printer) kernel(k *Kernel) {
	if k.InSync {
		p.line("kernel", "has the desired state: %s, compared in %.2f s", sanitize.Count(k.Elements, "element"), k.Seconds)
	} else {
		p.line("kernel", "differs from the desired state: %s, %s",
			sanitize.Count(len(k.Differences), "difference"), sanitize.Count(k.Elements, "element"))
	}
	p.list("", len(k.Differences), func(i int) string { return k.Differences[i].String() })
}

func sinceText(at time.Time) string {
	return fmt.Sprintf("%s (%s ago)", at.UTC().Format("2006-01-02 15:04:05 UTC"), time.Since(at).Round(time.Second))
}

func interruptionsText(interruptions []status.Interruption) string {
	if len(interruptions) == 0 {
		return "is reachable"
	}
	var texts []string
	for _, interruption := range interruptions {
		texts = append(texts, fmt.Sprintf("%s since %s: %s", interruption.Resource, sinceText(interruption.Since), interruption.Reason))
	}
	return "has interrupted watches: " + strings.Join(texts, "; ")
}

// servicesText returns the actual and the desired number of Services.
func (n *Node) servicesText() string {
	text := fmt.Sprintf("%d in the kernel (%d expected)", n.Proxy.Services, n.Kernel.Services)
	if n.Proxy.DNSServices+n.Kernel.DNSServices > 0 {
		text += fmt.Sprintf("; %d served by DNS (%d expected)", n.Proxy.DNSServices, n.Kernel.DNSServices)
	}
	return text
}

// otherProxiesText names the other service proxies on the node, and what to do. others is nil if there was no check.
func otherProxiesText(conflicts []competing.Conflict) string {
	switch {
	case conflicts == nil:
		return "are intended, with --service-proxy-name"
	case len(conflicts) == 0:
		return "none has rules in nf_tables"
	}
	var texts []string
	for _, other := range conflicts {
		texts = append(texts, other.Message+"; "+other.Remedy)
	}
	return strings.Join(texts, "; ")
}
