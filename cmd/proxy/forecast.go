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

  # the same for kubectl's current cluster, as one HTML page
  proxy forecast -o html > forecast.html

  # what if a zone is evacuated while a Service is scaled up in another one?
  proxy forecast --evacuate zone-b --scale shop/web=zone-a:6

  # what if its load is bounded?
  proxy forecast --annotate 'shop/cart ` + policy.MaxLoadAnnotation + `=120%'

  # in a pipeline: fail if the expected load of an endpoint exceeds 1.5 times the mean, less than 80 % stays in the zone,
  # or anything is refused
  proxy forecast --manifests state --max-load 150% --min-in-zone 80% --max-refused 0

  # with measured demand, and with the cost of traffic between zones
  promtool query instant -o json http://prometheus:9090 'sum by (node) (rate(requests_total[1h]))' > demand.json
  proxy forecast --demand demand.json
  promtool query instant -o json http://prometheus:9090 \
    'sum by (instance, namespace, service) (rate(vicinity_service_traffic_bytes_total[1d]))' > bytes.json
  proxy forecast --demand bytes.json --price 0.01/GB`

func newForecast() *cobra.Command {
	var flags forecastFlags
	command := &cobra.Command{
		Use:   "forecast [[NAMESPACE/]NAME] [flags]",
		Short: "Forecast where new connections go, and the effect of other settings",
		Long: `Print for each Service, and for all together, the share of new connections that stays on the client's node, in its zone
and in its region, the load of the busiest endpoint relative to the mean, and the share that is refused: with the present settings, and
side by side without any preference, with trafficDistribution, with topology-mode Auto, and with a load bound.
Where connections are refused, or a setting has no effect, it prints the reason and the fix. Where another setting is
better, it prints the reason and the change. Shares are of all connections, including refused ones.

Nothing has to be installed. It works with kube-proxy or any other proxy in the cluster, reads Services, EndpointSlices,
Nodes, and any ServiceDemands with the Lease that keeps them valid, and changes nothing. The hints for trafficDistribution
and Auto are computed by the EndpointSlice controller's own packages; where these choose at random which zone gives an
endpoint to which, zones are taken by name.

It covers connections inside the cluster, to ClusterIPs and to headless Services. The latter follow topology keys if the
node's DNS cache queries the proxy. It counts connections, not bytes. Each Node counts as one client, or as given by its label
` + policy.DemandLabel + `, unless the Service names its clients, or a ServiceDemand has measured demand
(--demand-source) with which proxies would plan. --demand uses demand that was measured in another way.

Without NAME it covers the Services of all namespaces, or of the namespace given by -n. NAME without NAMESPACE is in the
namespace given by -n, or else in the namespace of the kubeconfig's context.

Hypothetical changes (--without-nodes, --evacuate, --annotate and --scale, any number of times) are applied in the given
order, and the output shows before and after. In both, loads are multiples of the mean before the changes: the load of an
endpoint that takes over the work of another one is 2.00. A change that the webhook would deny is an error.
While Nodes are being evacuated, or would be, it lists the Services that have no other endpoints, and on which Nodes.

Exit status: 1 if a Service violates --max-load, --min-in-zone or --max-refused; 2 if the command line is wrong, if an
object is invalid or cannot be read, so that the forecast lacks it, if there is no Service to check, or if limits are
given and --demand has only part of the demand.`,
		Example:               forecastExamples,
		Args:                  cli.MaxArgs(1),
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, args []string) error {
			flags.stdin = command.InOrStdin()
			query, queryErr := flags.query(args, flags.contextNamespace())
			if query.Port != "" {
				queryErr = errors.New("a forecast is for whole Services; omit the port")
			}
			if err := errors.Join(queryErr, flags.Validate()); err != nil {
				return cli.UsageError{Err: err}
			}
			return exitUnreadable(command, runForecast(command.Context(), command.OutOrStdout(), command.ErrOrStderr(), &flags, query))
		},
	}
	flags.register(command.Flags())
	cli.Complete(command, "output", "text", "json", "yaml", "html")
	cli.Complete(command, "demand-source", demandMeasured, demandAssumed)
	return command
}

// exitUnreadable prints an unreadableError and replaces it by its exit status.
func exitUnreadable(command *cobra.Command, err error) error {
	if _, ok := errors.AsType[unreadableError](err); ok {
		cli.PrintError(command.ErrOrStderr(), command.Root().Name(), err)
		return cli.ExitError(exitIncomplete)
	}
	return err
}

// unreadableError is the reason why the input of a command could not be read.
type unreadableError struct{ error }

func (e unreadableError) Unwrap() error { return e.error }

// The values of --demand-source.
const (
	demandMeasured = policy.Measured
	demandAssumed  = "assumed"
)

// forecastFlags are the flags of forecast.
type forecastFlags struct {
	kubectlFlags
	limitFlags
	namespaceFlags
	viewFlags
	publisherNamespace           string // the namespace of the publisher of ServiceDemands
	bounds                       []string
	demand, demandSource, output string
	top                          int

	perGB       float64           // 0 without a price
	changes     []forecast.Change // the hypothetical changes; changeFlags are their flags as given
	changeFlags []string

	parsedBounds []uint64         // after Validate
	traffic      forecast.Traffic // after readDemand, with a price
}

func (f *forecastFlags) register(flags *pflag.FlagSet) {
	f.kubectlFlags.register(flags)
	f.namespaceFlags.register(flags)
	f.viewFlags.register(flags, "`NAME` that Services must have in their label, as with 'run'",
		"`PERCENT`, as with 'run': the load bound of Services that have none",
		"`SOURCE`, as with 'run': "+policy.Measured+", for Services with a load bound that name neither clients nor a demand source")
	registerPublisher(flags, &f.publisherNamespace)
	flags.StringSliceVar(&f.bounds, "bound", []string{policy.FormatMaxLoad(policy.DefaultLoadBound)},
		"load bounds to compare, in `PERCENT` of the mean load, 100% to 1000%, comma-separated")
	flags.StringVar(&f.demand, "demand", "",
		"`FILE` with the demand of each node or zone (default: by --demand-source, else one client per node): the result of an "+
			"instant query, as Prometheus' HTTP API or 'promtool query instant -o json' prints it, by node or zone. A sample that also names "+
			"a Service is demand on that Service, and part of its weight in sums. Load bounds are planned as the proxies plan them now, and, for "+
			"comparison, with this demand: as "+
			"'120% measured'")
	flags.StringVar(&f.demandSource, "demand-source", demandMeasured,
		"`SOURCE` of the demand of Services with a ServiceDemand: measured, that of the ServiceDemand; or assumed, as if it did not exist. "+
			"Load bounds are compared with both plans: '120%', with assumed demand, and '120% measured'")
	flags.Func("price",
		"`PRICE` of bytes between zones, such as 0.01/GB: print the monthly cost of each setting. Needs --demand in bytes per second "+
			"(sum by (instance, namespace, service) (rate(vicinity_service_traffic_bytes_total[1d])))",
		func(text string) (err error) {
			f.perGB, err = forecast.ParsePrice(text)
			return err
		})
	flags.StringVarP(&f.output, "output", "o", "text", "`FORMAT` of the output: text, json, yaml, or html for one page")
	flags.IntVar(&f.top, "top", 30, "`NUMBER` of Services in text output; 0 for all")
	f.limitFlags.register(flags)
	registerChange(f, flags, "without-nodes", "what if the Nodes that match a label `SELECTOR` were removed, with their endpoints?",
		forecast.ParseWithoutNodes)
	registerChange(f, flags, "evacuate", "what if a `ZONE`, or the Nodes that match a label selector, were being evacuated?",
		forecast.ParseEvacuate)
	registerChange(f, flags, "annotate", "what if a Service had another `ANNOTATION`, written 'NAMESPACE/NAME KEY=VALUE'? The key "+
		"trafficDistribution is the field; an empty value removes it", forecast.ParseAnnotate)
	registerChange(f, flags, "scale", "what if a Service had these ready endpoints in a zone: `NAMESPACE/NAME=ZONE:REPLICAS`?",
		forecast.ParseScale)
}

// registerChange registers a flag that adds a change.
func registerChange[C forecast.Change](f *forecastFlags, flags *pflag.FlagSet, name, usage string, parse func(string) (C, error)) {
	flags.Func(name, usage, func(text string) error {
		change, err := parse(text)
		f.changes, f.changeFlags = append(f.changes, change), append(f.changeFlags, "--"+name+" "+text)
		return err
	})
}

// Validate checks all flags and reports all errors at once.
func (f *forecastFlags) Validate() error {
	errs := []error{f.kubectlFlags.Validate(), cli.Choice("output", f.output, "text", "json", "yaml", "html"),
		cli.Choice("demand-source", f.demandSource, demandMeasured, demandAssumed), f.viewFlags.Validate()}
	if f.perGB > 0 && f.demand == "" {
		errs = append(errs, errors.New("--price needs --demand, with the number of bytes"))
	}
	f.parsedBounds = nil
	for _, text := range f.bounds {
		limit, err := policy.ParseMaxLoad(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--bound: %w", err))
		}
		if !slices.Contains(f.parsedBounds, limit) {
			f.parsedBounds = append(f.parsedBounds, limit)
		}
	}
	if f.top < 0 {
		errs = append(errs, fmt.Errorf("--top %d must be 0 or more", f.top))
	}
	if f.output == "html" && len(f.changes) > 0 {
		errs = append(errs, errors.New("-o html shows one state, and no before and after; "+
			"omit --without-nodes, --evacuate, --annotate and --scale"))
	}
	return errors.Join(errs...)
}

func runForecast(ctx context.Context, stdout, stderr io.Writer, flags *forecastFlags, query explain.Query) error {
	objects, invalid, err := readObjects(ctx, stderr, &flags.manifestsFlag, flags.connection(), flags.publisherNamespace)
	if err != nil {
		return unreadableError{err}
	}
	origin, inventory := flags.origin(), objects.Inventory()
	state := forecast.NewCluster(objects, convert.View{
		ServiceProxyName: flags.serviceProxyName, DefaultMaxLoad: flags.maxLoad, DefaultMeasured: flags.measured,
	})
	if flags.demandSource == demandAssumed {
		state = state.WithoutMeasuredDemand()
	}
	if missing := inventory.MissingKinds(origin, "nothing can be forecast", convert.Services, convert.Nodes); missing != "" {
		return unreadableError{errors.New(missing)}
	}
	missingSlices, _ := objects.FolderInventory.MissingSlices(origin) // an API server's list is authoritative
	if missingSlices != "" {
		sanitize.Fprintf(stderr, "warning: %s\n", missingSlices)
	}
	if len(objects.Nodes) == 0 {
		return unreadableError{errors.New("no Node could be read, so there are no clients: see the warnings above")}
	}
	if query != (explain.Query{}) && !slices.ContainsFunc(state.ServiceNames(), query.Covers) {
		return unreadableError{flags.notFound(state, query)}
	}
	options := forecast.Options{
		Now: time.Now(), Bounds: flags.parsedBounds, Checker: ruleChecker(objects, flags.serviceProxyName), Only: query,
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
	var findings []model.Finding
	if len(flags.changes) > 0 {
		before, report, findings = forecast.Compare(state, after, options)
	} else {
		report, findings = forecast.Compute(state, options)
	}
	if flags.perGB > 0 {
		before.EstimateCost(flags.traffic, flags.perGB)
		report.EstimateCost(flags.traffic, flags.perGB)
	}
	printWarnings(stderr, findings)
	if err := flags.print(stdout, &before, &report); err != nil {
		return err
	}
	return flags.checkLimits(stderr, &report, missingSlices != "", append(invalid, findings...), query)
}

func (f *forecastFlags) notFound(state forecast.Cluster, query explain.Query) error {
	if query.Service.Name == "" {
		return explain.NamespaceNotFound(query.Service.Namespace, state.ServiceNames(), f.origin())
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

// print prints a report; with hypothetical changes, also the report without them.
func (f *forecastFlags) print(stdout io.Writer, before, report *forecast.Report) error {
	switch isComparison := len(f.changes) > 0; {
	case f.output == "html":
		return forecast.HTML(stdout, report)
	case f.output == "text" && isComparison:
		return forecast.Comparison(stdout, strings.Join(f.changeFlags, ", "), before, report, f.top)
	case f.output == "text":
		return forecast.Text(stdout, report, f.top)
	case isComparison:
		return explain.Print(stdout, f.output, map[string]any{"before": before, "after": report})
	}
	return explain.Print(stdout, f.output, report)
}

// checkLimits returns exitIncomplete if a part of the requested objects could not be read, or else status 1 if a
// Service violates the limits.
func (f *forecastFlags) checkLimits(
	stderr io.Writer, report *forecast.Report, lacksSlices bool, invalid []model.Finding, query explain.Query,
) error {
	violations := report.Violations(f.limits)
	for _, sentence := range violations {
		sanitize.Fprintf(stderr, "proxy: %s\n", sentence)
	}
	err := incompleteError(invalid, query)
	if lacksSlices {
		err = cli.ExitError(exitIncomplete)
	}
	if err != nil {
		sanitize.Fprintf(stderr, "proxy: the forecast lacks objects that could not be read: see the warnings above\n")
		return err
	}
	if noServices := len(report.Services) == 0; noServices && (f.hasLimits() || len(report.NotServed) == 0) {
		sanitize.Fprintf(stderr, "proxy: there is no Service whose connections could be forecast\n")
		return cli.ExitError(exitIncomplete)
	}
	if f.limits.MinInZone != nil && report.NodesWithoutZone == report.Nodes {
		sanitize.Fprintf(stderr, "proxy: --min-in-zone cannot be checked: no Node has the label %s\n", policy.Zone)
		return cli.ExitError(exitIncomplete)
	}
	if len(report.Incomplete) > 0 && f.hasLimits() {
		for _, sentence := range report.Incomplete {
			sanitize.Fprintf(stderr, "proxy: limits cannot be checked with part of the demand: %s\n", sentence)
		}
		return cli.ExitError(exitIncomplete)
	}
	if len(violations) > 0 {
		return cli.ExitError(cli.Failure)
	}
	return nil
}
