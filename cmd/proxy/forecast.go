package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/boundedio"
	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/forecast"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

const forecastExamples = `  # what would a cluster gain? Nothing has to be installed in it
  kubectl get services,endpointslices,nodes,namespaces -A -o yaml | proxy forecast --manifests -

  # the same, of the cluster that kubectl talks to, as one file to look at
  proxy forecast -o html > forecast.html

  # what if a zone is evacuated while a Service is scaled up in another one?
  proxy forecast --evacuate zone-b --scale shop/web=zone-a:6

  # what if its load is bounded?
  proxy forecast --annotate 'shop/cart ` + policy.MaxLoadAnnotation + `=120%'

  # in a pipeline: fail if an endpoint would expect more than 1.5 times the mean, less than 80 % stays in the zone, or
  # anything is refused
  proxy forecast --manifests state --max-load 150% --min-in-zone 80% --max-refused 0

  # by what was measured, and what it would cost
  promtool query instant -o json http://prometheus:9090 'sum by (node) (rate(requests_total[1h]))' > demand.json
  proxy forecast --demand demand.json
  promtool query instant -o json http://prometheus:9090 \
    'sum by (instance, namespace, service) (rate(vicinity_service_traffic_bytes_total[1d]))' > bytes.json
  proxy forecast --demand bytes.json --price 0.01/GB`

func newForecast() *cobra.Command {
	var flags forecastFlags
	command := &cobra.Command{
		Use:   "forecast [[NAMESPACE/]NAME] [flags]",
		Short: "Print where new connections go, over all nodes, and what other settings would make of that",
		Long: `Print for each Service, and for all together, which share of new connections stays on the client's node, in its zone
and in its region, how much the busiest endpoint expects compared with the mean, and what is refused: as the cluster is now, and
side by side without any preference, with trafficDistribution, with topology-mode Auto, and with a bound on the load.
Where connections are refused, or a setting has no effect, it says why, and how to fix it. Where another setting is
better, it says why, and what to write. Shares are of all connections, refused ones included.

Nothing has to be installed. It works with kube-proxy or any other proxy in the cluster, reads Services, EndpointSlices,
Nodes, and where they are ServiceDemands and the Lease that says whether they still count, and changes nothing. The
hints that trafficDistribution and Auto would bring are computed by the EndpointSlice controller's own packages; where
these leave it to chance which zone gives an endpoint to which, zones are taken by name.

It is about connections inside the cluster, to ClusterIPs and to headless Services. The latter follow topology keys where
the node's DNS cache asks the proxy. It counts connections, not bytes. Each Node counts as one client, or as its label
` + policy.DemandLabel + ` says; where a Service names its clients, they count, and where a ServiceDemand says what was
measured, that (--demand-source), as long as proxies would plan with it. --demand takes what was measured in another way.

Without NAME it is about the Services of all namespaces, or of the one of -n. NAME without NAMESPACE is in that of -n, or in
the one of the kubeconfig's context.

What if? --without-nodes, --evacuate, --annotate and --scale, as often as wanted, show before and after. They are made in the
order in which they are written. Loads are multiples of the mean before in both: an endpoint that has to do the work of two
expects 2.00. What the webhook would deny is an error.
While Nodes are being evacuated, or would be, it lists the Services that have nothing else, and on which Nodes.

Exit status: 1 if a Service misses --max-load, --min-in-zone or --max-refused; 2 if the command line is wrong, if
something cannot be read or is refused, so that the forecast lacks it, if there is no Service to judge, or if it is to be
judged and --demand has only part of the demand.`,
		Example:               forecastExamples,
		Args:                  cli.MaxArgs(1),
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, args []string) error {
			flags.stdin = command.InOrStdin()
			query, malformed := flags.query(args, flags.ofContext())
			if query.Port != "" {
				malformed = errors.New("a forecast is for whole Services; leave the port out")
			}
			if err := errors.Join(malformed, flags.Validate()); err != nil {
				return cli.UsageError{Err: err}
			}
			return hasUnreadable(command, runForecast(command.Context(), command.OutOrStdout(), command.ErrOrStderr(), &flags, query))
		},
	}
	flags.register(command.Flags())
	cli.Complete(command, "output", "text", "json", "yaml", "html")
	cli.Complete(command, "demand-source", clientsMeasured, clientsAssumed)
	return command
}

// hasUnreadable prints an unreadableError and replaces it by its exit status.
func hasUnreadable(command *cobra.Command, err error) error {
	if _, is := errors.AsType[unreadableError](err); is {
		cli.PrintError(command.ErrOrStderr(), command.Root().Name(), err)
		return cli.ExitError(exitUnread)
	}
	return err
}

// unreadableError is why the input of a forecast could not be read.
type unreadableError struct{ error }

func (e unreadableError) Unwrap() error { return e.error }

// The values of --demand-source.
const (
	clientsMeasured = policy.Measured
	clientsAssumed  = "assumed"
)

// forecastFlags are the flags of forecast.
type forecastFlags struct {
	kubectlFlags
	gateFlags
	namespaceFlags
	viewFlags
	publisher               string // the namespace of the publisher of ServiceDemands
	bounds                  []string
	demand, clients, output string
	top                     int

	perGB   float64           // 0 without a price
	changes []forecast.Change // the what-ifs; args are their flags as written
	args    []string

	bound   []uint64         // after Validate
	traffic forecast.Traffic // after readDemand, with a price
}

func (f *forecastFlags) register(flags *pflag.FlagSet) {
	f.kubectlFlags.register(flags)
	f.namespaceFlags.register(flags)
	f.viewFlags.register(flags, "`NAME` that Services must carry, as with 'run'",
		"`PERCENT`, as with 'run': the bound of Services that have none",
		"`SOURCE`, as with 'run': "+policy.Measured+", for Services with a bound that name neither clients nor a demand source")
	registerPublisher(flags, &f.publisher)
	flags.StringSliceVar(&f.bounds, "bound", []string{policy.FormatMaxLoad(policy.DefaultLoadBound)},
		"`PERCENT` of the mean load, 100% to 1000%, to compare as a bound; several, comma-separated")
	flags.StringVar(&f.demand, "demand", "",
		"`FILE` with the demand of each node or zone (default: as --demand-source says, else one client per node): the result of an "+
			"instant query, as Prometheus' HTTP API or 'promtool query instant -o json' prints it, by node or zone. What is by Service, too, "+
			"is the demand of that Service, and its weight in sums. Bounds are planned as the proxies plan them now, and, to "+
			"compare, with this demand: as "+
			"'120% measured'")
	flags.StringVar(&f.clients, "demand-source", clientsMeasured,
		"`SOURCE` of the demand of Services with a ServiceDemand: measured, as that says; or assumed, as if nobody had measured. "+
			"Bounds are compared with both plans: '120%', with assumed demand, and '120% measured'")
	flags.Func("price",
		"`PRICE` of bytes between zones, such as 0.01/GB: print what each setting would cost in a month. Needs --demand in bytes a second "+
			"(sum by (instance, namespace, service) (rate(vicinity_service_traffic_bytes_total[1d])))",
		func(text string) (err error) {
			f.perGB, err = forecast.ParsePrice(text)
			return err
		})
	flags.StringVarP(&f.output, "output", "o", "text", "`FORMAT` of the output: text, json, yaml, or html for one file to look at")
	flags.IntVar(&f.top, "top", 30, "`NUMBER` of Services that text shows; 0 for all")
	f.gateFlags.register(flags)
	whatIf(f, flags, "without-nodes", "what if the Nodes that a label `SELECTOR` chooses were gone, with what runs there?",
		forecast.ParseWithoutNodes)
	whatIf(f, flags, "evacuate", "what if a `ZONE`, or the Nodes that a label selector chooses, were being evacuated?", forecast.ParseEvacuate)
	whatIf(f, flags, "annotate", "what if a Service had another `ANNOTATION`, written 'NAMESPACE/NAME KEY=VALUE'? The key "+
		"trafficDistribution is the field; no value takes it away", forecast.ParseAnnotate)
	whatIf(f, flags, "scale", "what if a Service had so many ready endpoints in a zone: `NAMESPACE/NAME=ZONE:REPLICAS`?", forecast.ParseScale)
}

// whatIf registers a flag that adds a change.
func whatIf[C forecast.Change](f *forecastFlags, flags *pflag.FlagSet, name, usage string, parse func(string) (C, error)) {
	flags.Func(name, usage, func(text string) error {
		change, err := parse(text)
		f.changes, f.args = append(f.changes, change), append(f.args, "--"+name+" "+text)
		return err
	})
}

// Validate checks all flags and reports all errors at once.
func (f *forecastFlags) Validate() error {
	errs := []error{f.kubectlFlags.Validate(), cli.Choice("output", f.output, "text", "json", "yaml", "html"),
		cli.Choice("demand-source", f.clients, clientsMeasured, clientsAssumed), f.viewFlags.Validate()}
	if f.perGB > 0 && f.demand == "" {
		errs = append(errs, errors.New("--price needs --demand, which says how many bytes there are"))
	}
	f.bound = nil
	for _, text := range f.bounds {
		limit, err := policy.ParseMaxLoad(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--bound: %w", err))
		}
		if !slices.Contains(f.bound, limit) {
			f.bound = append(f.bound, limit)
		}
	}
	if f.top < 0 {
		errs = append(errs, fmt.Errorf("--top %d must be 0 or more", f.top))
	}
	if f.output == "html" && len(f.changes) > 0 {
		errs = append(errs, errors.New("-o html shows one state, and no before and after; leave the what-ifs out"))
	}
	return errors.Join(errs...)
}

func runForecast(ctx context.Context, stdout, stderr io.Writer, flags *forecastFlags, query explain.Query) error {
	objects, unread, err := readObjects(ctx, stderr, &flags.manifestsFlag, flags.connection(), flags.publisher)
	if err != nil {
		return unreadableError{err}
	}
	origin, held := flags.origin(), objects.Inventory()
	state := forecast.NewCluster(objects, convert.View{
		ServiceProxyName: flags.serviceProxyName, DefaultMaxLoad: flags.maxLoad, DefaultMeasured: flags.measured,
	})
	if flags.clients == clientsAssumed {
		state = state.WithoutMeasuredDemand()
	}
	if lack := held.MissingKinds(origin, "nothing can be forecast", convert.Services, convert.Nodes); lack != "" {
		return unreadableError{errors.New(lack)}
	}
	noSlices, _ := objects.Held.MissingSlices(origin) // an API server's list is authoritative
	if noSlices != "" {
		sanitize.Fprintf(stderr, "warning: %s\n", noSlices)
	}
	if len(objects.Nodes) == 0 {
		return unreadableError{errors.New("no Node could be read, so there are no clients: see the warnings above")}
	}
	if query != (explain.Query{}) && !slices.ContainsFunc(state.ServiceNames(), query.Covers) {
		return unreadableError{flags.notFound(state, query)}
	}
	options := forecast.Options{
		Now: time.Now(), Bounds: flags.bound, Checker: ruleChecker(objects, flags.serviceProxyName), Only: query,
	}
	if flags.demand != "" {
		if err := flags.readDemand(state, &options); err != nil {
			return unreadableError{err}
		}
	}
	after, err := state.Apply(flags.changes)
	if err != nil {
		return unreadableError{err}
	}
	if err := checkChanges(stderr, state, after, flags.changes, options.Checker); err != nil {
		return unreadableError{err}
	}
	var before, report forecast.Report
	var rejected []model.Finding
	if len(flags.changes) > 0 {
		before, report, rejected = forecast.Compare(state, after, options)
	} else {
		report, rejected = forecast.Compute(state, options)
	}
	if flags.perGB > 0 {
		before.EstimateCost(flags.traffic, flags.perGB)
		report.EstimateCost(flags.traffic, flags.perGB)
	}
	warnOf(stderr, rejected)
	if err := flags.print(stdout, &before, &report); err != nil {
		return err
	}
	return flags.checkLimits(stderr, &report, noSlices != "", append(unread, rejected...), query)
}

func (f *forecastFlags) notFound(state forecast.Cluster, query explain.Query) error {
	if query.Service.Name == "" {
		return explain.NoNamespace(query.Service.Namespace, state.ServiceNames(), f.origin())
	}
	return state.NotFound(query.Service)
}

// maxDemand is the maximum size of the file of --demand, in bytes: ten series of each of 20,000 Nodes.
const maxDemand = 64 << 20

// readDemand reads the file of --demand, and the bytes to which the price applies.
func (f *forecastFlags) readDemand(state forecast.Cluster, options *forecast.Options) error {
	text, err := boundedio.ReadFile(f.demand, maxDemand)
	if err != nil { // the error names the file
		return fmt.Errorf("--demand: %w", err)
	}
	samples, err := forecast.ParseSamples(text)
	if err == nil {
		options.Demand, err = forecast.NewMeasurement(f.demand, samples, state)
	}
	if err == nil && f.perGB > 0 {
		f.traffic, err = forecast.TrafficOf(samples)
	}
	if err != nil {
		return fmt.Errorf("--demand %s: %w", f.demand, err)
	}
	return nil
}

// print prints a report; with what-ifs, also the report without them.
func (f *forecastFlags) print(stdout io.Writer, before, report *forecast.Report) error {
	switch isComparison := len(f.changes) > 0; {
	case f.output == "html":
		return forecast.HTML(stdout, report)
	case f.output == "text" && isComparison:
		return forecast.Comparison(stdout, strings.Join(f.args, ", "), before, report, f.top)
	case f.output == "text":
		return forecast.Text(stdout, report, f.top)
	case isComparison:
		return explain.Print(stdout, f.output, map[string]any{"before": before, "after": report})
	}
	return explain.Print(stdout, f.output, report)
}

// checkLimits returns exitUnread if a part of the requested objects could not be read, or else status 1 if a Service
// violates the limits.
func (f *forecastFlags) checkLimits(
	stderr io.Writer, report *forecast.Report, lacksSlices bool, unread []model.Finding, query explain.Query,
) error {
	missed := report.Violations(f.limits)
	for _, sentence := range missed {
		sanitize.Fprintf(stderr, "proxy: %s\n", sentence)
	}
	err := incomplete(unread, query)
	if lacksSlices {
		err = cli.ExitError(exitUnread)
	}
	if err != nil {
		sanitize.Fprintf(stderr, "proxy: the forecast lacks what could not be read: see the warnings above\n")
		return err
	}
	if none := len(report.Services) == 0; none && (f.isGate() || len(report.NotServed) == 0) {
		sanitize.Fprintf(stderr, "proxy: there is no Service whose connections could be forecast\n")
		return cli.ExitError(exitUnread)
	}
	if f.limits.MinNear != nil && report.NodesWithoutZone == report.Nodes {
		sanitize.Fprintf(stderr, "proxy: --min-in-zone cannot be judged: no Node has the label %s\n", policy.Zone)
		return cli.ExitError(exitUnread)
	}
	if len(report.Incomplete) > 0 && f.isGate() {
		for _, sentence := range report.Incomplete {
			sanitize.Fprintf(stderr, "proxy: limits cannot be judged by part of the demand: %s\n", sentence)
		}
		return cli.ExitError(exitUnread)
	}
	if len(missed) > 0 {
		return cli.ExitError(cli.Failure)
	}
	return nil
}
