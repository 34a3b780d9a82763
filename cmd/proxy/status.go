package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/printable"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/dns"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/interfaces"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/otherproxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/status"
)

// newStatus returns the command; from everywhere it asks all nodes.
func newStatus(everywhere bool) *cobra.Command {
	var output string
	nodes := rollcallFlags{allNodes: everywhere}
	command := &cobra.Command{
		Use:   "status [flags]",
		Short: "Print whether the kernel of this node holds what it should, and what the proxy says of its work",
		Long: `Ask the proxy that runs on this node, at --metrics-bind-address: since when the kernel agrees with the cluster, what changed
last and how long it took, what waits, is refused or contested, and whether the API server is heard.

Then compare what the kernel holds with what it should hold, element by element, chain by chain and rule by rule. Both are
found anew: the Services are read where the proxy reads them, with the flags that it says it has, and the kernel is asked by
another connection. The proxy's own record of the kernel is not used. In which slot of a port an endpoint is depends
on history and means nothing; only the number of its slots is compared. A difference counts if it is there twice, a second
apart: a change on its way is none.

All flags of 'proxy run' may be given; they replace what the proxy says, and are needed if none answers.

With --all-nodes the proxies of all Nodes are asked instead, through the API server, and their kernels are not compared:
that needs to list Nodes, and in the proxy's namespace to list pods and to get pods/proxy.

Rules of another service proxy that may answer first do not agree either, unless --service-proxy-name is set.

Of an object that is refused the last good version should be in the kernel, if the proxy has seen one; nobody else has. The
proxy is asked for it, and refused objects are listed.

Exit status: 0 if everything agrees, 1 if not, and 2 if all agrees but nothing is in force of an object that is refused, or there
is no Service at all; with --all-nodes 2 if all agree but one left objects out. Root (CAP_NET_ADMIN) is needed, but for
--all-nodes.`,
		Example: `  # on a node
  sudo proxy status

  # in the pod of a node
  kubectl -n kube-system exec vicinity-proxy-x7k2p -- proxy status

  # a line for each node
  proxy status --all-nodes

  # where the kernel differs, for scripts
  proxy status -o json | jq -r '.kernel.differences[] | [.table, .in, .what, .kind] | @tsv'`,
		Args:                  cli.AtMost(0),
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := cli.OneOf("output", output, "text", "json", "yaml"); err != nil {
				return cli.UsageError{Err: err}
			}
			given := givenOfRun(command.Flags())
			if nodes.allNodes {
				return toldUnreadable(command,
					runRollcall(command.Context(), command.OutOrStdout(), command.ErrOrStderr(), given["kubeconfig"], &nodes, output))
			}
			return runStatus(command.Context(), command.InOrStdin(), command.OutOrStdout(), given, output)
		},
	}
	new(runFlags).register(command.Flags())
	command.Flags().VisitAll(func(flag *pflag.Flag) {
		flag.Hidden = !slices.Contains([]string{"config", "metrics-bind-address", "manifests", "kubeconfig", "node"}, flag.Name)
	})
	nodes.register(command.Flags())
	command.Flags().StringVarP(&output, "output", "o", "text", "`FORMAT` of the output: text, json or yaml")
	cli.Complete(command, "output", "text", "json", "yaml")
	return command
}

// givenOfRun returns the flags of 'proxy run' that were given.
func givenOfRun(flags *pflag.FlagSet) map[string]string {
	given, ofRun := map[string]string{}, pflag.NewFlagSet("run", pflag.ContinueOnError)
	new(runFlags).register(ofRun)
	flags.Visit(func(flag *pflag.Flag) {
		if ofRun.Lookup(flag.Name) != nil {
			given[flag.Name] = valueOf(flag)
		}
	})
	return given
}

// valueOf is a flag's value as it is written on a command line.
func valueOf(flag *pflag.Flag) string {
	if list, isList := flag.Value.(pflag.SliceValue); isList {
		return strings.Join(list.GetSlice(), ",")
	}
	return flag.Value.String()
}

// nodeStatus is what is known of a node.
//
// Its JSON names are an interface: scripts read them.
type nodeStatus struct {
	// Agrees: the proxy is well, the kernel holds what it should, and no other service proxy may answer before.
	Agrees bool `json:"agrees"`
	// Proxy is what the proxy says; null if none answers.
	Proxy  *status.Summary `json:"proxy"`
	Kernel kernelStatus    `json:"kernel"`
	// Refused are what this command found that cannot be right; never null. The kernel is compared with what the proxy says
	// is in force of it.
	Refused []refusedObject `json:"refused"`
	// Lacks says why nothing was compared, or not all, though nothing is refused: there is no Service, or no EndpointSlice that
	// is read. Empty if it was.
	Lacks string `json:"lacks"`
}

// kernelStatus is how the kernel compares with what it should hold.
type kernelStatus struct {
	Agrees bool `json:"agrees"`
	// Services and DNSServices are how many there should be of what the proxy counts by these names.
	Services    int                  `json:"services"`
	DNSServices int                  `json:"dnsServices"`
	Elements    int                  `json:"elements"` // that were read
	Seconds     float64              `json:"seconds"`  // that the comparison took
	Differences []ruleset.Difference `json:"differences"`
	// OtherProxies are those that translate connections here; null where two are wanted, with --service-proxy-name.
	OtherProxies []otherproxy.Finding `json:"otherProxies"`
}

func runStatus(ctx context.Context, stdin io.Reader, stdout io.Writer, given map[string]string, output string) error {
	flags, err := parsedRun(given)
	if err != nil {
		return cli.UsageError{Err: err}
	}
	address := flags.settings.MetricsBindAddress
	var node nodeStatus
	var summary status.Summary
	said := map[string]string{}
	if page, err := ask(ctx, address, "/summary"); err == nil && json.Unmarshal(page, &summary) == nil {
		node.Proxy = &summary
		if err := askFlags(ctx, address, given, said); err != nil {
			return fmt.Errorf("ask the proxy at %s for its flags: %w", address, err)
		}
	}
	maps.Copy(said, given)
	if flags, err = parsedRun(said); err != nil {
		return err
	}
	flags.stdin = stdin
	if err := flags.Validate(); err != nil {
		if node.Proxy == nil {
			return fmt.Errorf("no proxy answers at %s, and without it the flags of 'proxy run' must be given: %w", address, err)
		}
		return err
	}
	lastGood := func() ([]convert.Refusal, error) { return nil, nil }
	if node.Proxy != nil {
		lastGood = func() ([]convert.Refusal, error) { return askLastGood(ctx, address) }
	}
	if node.Kernel, err = compareKernel(ctx, flags, lastGood); err != nil {
		return err
	}
	node.Refused = refusedObjects(flags.refused, flags.lastGood)
	node.Lacks = flags.lacks(&node.Kernel)
	isSaid, isInForce := told(node.Refused)
	node.Agrees = node.Kernel.Agrees && len(node.Kernel.OtherProxies) == 0 && isSaid &&
		node.Proxy != nil && node.Proxy.AgreesSince != nil && node.Proxy.LastError == ""
	if output == "text" {
		err = node.print(stdout, address)
	} else {
		err = explain.Print(stdout, output, node)
	}
	switch {
	case err != nil:
	case !node.Agrees:
		err = cli.Exit(cli.Failure)
	case !isInForce || node.Lacks != "":
		err = cli.Exit(exitUnread)
	}
	return err
}

// lacks says why nothing was compared, or not all, though nothing is refused; empty if it was.
func (f *runFlags) lacks(compared *kernelStatus) string {
	switch {
	case f.lacksSlices:
		sentence, _ := f.held.LackOfSlices(f.origin())
		return sentence
	case compared.Services+compared.DNSServices == 0:
		return f.noService()
	}
	return ""
}

// parsedRun returns the flags of 'proxy run' with some values, and the configuration read.
func parsedRun(values map[string]string) (*runFlags, error) {
	set, flags := pflag.NewFlagSet("run", pflag.ContinueOnError), &runFlags{}
	flags.register(set)
	for name, value := range values {
		if err := set.Set(name, value); err != nil {
			return nil, fmt.Errorf("--%s: %w", name, err)
		}
	}
	if err := flags.read(); err != nil {
		return nil, err
	}
	return flags, flags.resolve()
}

// looks is how often the kernel is compared before a difference counts, a second apart.
const looks = 2

// compareKernel compares the kernel with what it should hold. lastGood returns what is in force of refused objects.
func compareKernel(ctx context.Context, flags *runFlags, lastGood func() ([]convert.Refusal, error)) (kernelStatus, error) {
	reader, err := nft.OpenReader()
	if err != nil {
		return kernelStatus{}, err
	}
	defer func() { _ = reader.Close() }()
	began := time.Now()
	compared := kernelStatus{Differences: []ruleset.Difference{}}
	var before []ruleset.Difference
	for look := range looks {
		if flags.lastGood, err = lastGood(); err != nil {
			return kernelStatus{}, err
		}
		found, err := compared.differencesNow(ctx, flags, reader)
		if err != nil {
			return kernelStatus{}, err
		}
		if look == 0 {
			compared.Seconds = time.Since(began).Seconds()
		} else {
			found = slices.DeleteFunc(found, func(d ruleset.Difference) bool { return !slices.Contains(before, d) })
		}
		if before = found; len(found) == 0 {
			break
		}
		if look < looks-1 {
			select {
			case <-ctx.Done():
				return kernelStatus{}, ctx.Err()
			case <-time.After(time.Second):
			}
		}
	}
	if flags.serviceProxyName == "" {
		if compared.OtherProxies, err = reader.OtherProxies(ctx); err != nil {
			return kernelStatus{}, err
		}
	}
	compared.Differences = append(compared.Differences, before...)
	compared.Agrees = len(before) == 0
	return compared, nil
}

// differencesNow compares once, and counts. The kernel is read while the Services are; the longer of the two is what it takes.
func (k *kernelStatus) differencesNow(ctx context.Context, flags *runFlags, reader *nft.Reader) ([]ruleset.Difference, error) {
	var change model.Change
	flags.withHeadless = flags.dns.address.IsValid() // as the daemon
	tables := map[model.Family]*nft.Table{}
	err := cli.Together(ctx, func(ctx context.Context) (err error) {
		if change, err = flags.load(ctx, io.Discard, cluster.OwnNode); err != nil {
			return err
		}
		change.LocalAddrs, err = interfaces.Now(ctx, slog.New(slog.DiscardHandler))
		return err
	}, func(ctx context.Context) (err error) {
		for _, family := range model.Families {
			if tables[family], err = reader.Table(ctx, family); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	kernel := &numberedKernel{reader, tables, ruleset.Tables{}}
	p := proxy.New(flags.node, flags.settings.Tables(model.Families), kernel, noFlows{})
	names := &dns.Table{Zone: flags.dns.zone}
	p.Readers = append(p.Readers, names)
	p.Apply(change)
	report, err := p.Sync(ctx)
	if err != nil {
		return nil, fmt.Errorf("find out what the tables of node %s should hold: %w", flags.node, err)
	}
	k.Services, k.DNSServices, k.Elements = report.Total, names.Len(), 0
	var found []ruleset.Difference
	for _, family := range model.Families {
		differences, err := tables[family].Differences(&kernel.wanted)
		if err != nil {
			return nil, err
		}
		found = append(found, differences...)
		k.Elements += tables[family].Read
	}
	return found, nil
}

// numberedKernel is tables in memory that begin empty, but for the numbers of session affinity in the kernel: those
// depend on what was there before. So what a starting proxy writes is what the kernel should hold.
type numberedKernel struct {
	*nft.Reader
	held   map[model.Family]*nft.Table
	wanted ruleset.Tables
}

// Commit does what the batch says to the tables in memory.
func (k *numberedKernel) Commit(_ context.Context, batch ruleset.Batch) error {
	return k.wanted.Apply(batch)
}

// Objects returns the numbers, and nothing else: so nothing has to be removed.
func (k *numberedKernel) Objects(_ context.Context, family model.Family) (ruleset.Objects, error) {
	var numbers ruleset.Objects
	for name, contents := range k.held[family].Found.Contents {
		if _, recalled := ruleset.Recalled(name); recalled {
			numbers.Add(name, contents)
		}
	}
	return numbers, nil
}

// shownDifferences is how many the text shows.
const shownDifferences = 20

// print writes the status for a person.
func (n *nodeStatus) print(stdout io.Writer, address string) error {
	table := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', 0)
	line := func(label, format string, args ...any) {
		printable.Fprintf(table, "%s\t%s\n", label, fmt.Sprintf(format, args...))
	}
	ago := func(at time.Time) string {
		return fmt.Sprintf("%s (%s ago)", at.UTC().Format("2006-01-02 15:04:05 UTC"), time.Since(at).Round(time.Second))
	}
	if p := n.Proxy; p == nil {
		line("proxy", "none answers at %s", address)
	} else {
		line("proxy", "node %s, version %s, since %s", p.Node, p.Version, ago(p.Began))
		switch {
		case p.AgreesSince != nil:
			line("in agreement", "since %s, as far as the proxy knows", ago(*p.AgreesSince))
		case p.LastError != "":
			line("in agreement", "no: %s", p.LastError)
		default:
			line("in agreement", "no: %d Services wait for their turn", p.Waiting)
		}
		if p.Newest != nil {
			line("newest change", "%s; Services decided: %d, in %s", ago(p.Newest.At), p.Newest.Services,
				time.Duration(p.Newest.Seconds*float64(time.Second)).Round(10*time.Microsecond))
		}
		line("Services", "%s", n.counted())
		line("left out", "%d objects are refused, %d Services by the kernel; %d frontends are contested; %d Services wait",
			p.RefusedObjects, p.RefusedByKernel, p.Contested, p.Waiting)
		line("API server", "%s", heard(p.Interruptions, ago))
		if p.NodeTopology == "" {
			line("other nodes", "no Service asks where they are")
		} else {
			line("other nodes", "their labels come from %s", explain.SourceInWords(p.NodeTopology))
		}
	}
	k := &n.Kernel
	if k.Agrees {
		line("kernel", "holds what it should: %d elements, compared in %.2f s", k.Elements, k.Seconds)
	} else {
		line("kernel", "does not hold what it should: %d differences, %d elements", len(k.Differences), k.Elements)
	}
	for i, difference := range k.Differences {
		if i == shownDifferences {
			line("", "and %d more; -o json has all", len(k.Differences)-i)
			break
		}
		line("", "%s", difference)
	}
	n.printRefused(line)
	if n.Lacks != "" {
		line("missing", "%s", n.Lacks)
	}
	line("other proxies", "%s", notAlone(k.OtherProxies))
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}
