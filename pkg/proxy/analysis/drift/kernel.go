package drift

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/competing"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/interfaces"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/dns"
)

// Kernel is the result of comparing the kernel's tables with the desired ones.
//
// Its JSON names are an interface: scripts read them.
type Kernel struct {
	InSync bool `json:"inSync"`
	// Services and DNSServices are the desired values of the proxy's numbers of these names.
	Services    int                  `json:"services"`
	DNSServices int                  `json:"dnsServices"`
	Elements    int                  `json:"elements"` // number of elements read
	Seconds     float64              `json:"seconds"`  // duration of the comparison
	Differences []ruleset.Difference `json:"differences"`
	// OtherProxies are other service proxies that translate connections here; null if two are intended, with
	// --service-proxy-name.
	OtherProxies []competing.Conflict `json:"otherProxies"`
}

// Options select the node whose kernel is compared, and the desired state.
type Options struct {
	Node   string
	Config ruleset.Config
	Zone   dns.Zone
	// Load reads the state of the cluster. It is called for each comparison.
	Load func(context.Context) (model.Change, error)
	// IgnoreOtherProxies is set if other service proxies on the node are intended.
	IgnoreOtherProxies bool
}

// confirmations is how often the kernel is compared, a second apart, before a difference counts: a change that is not
// applied yet does not count.
const confirmations = 2

// Run compares the tables of the kernel in this network namespace with the desired ones.
func Run(ctx context.Context, options Options) (Kernel, error) {
	reader, err := nft.OpenReader()
	if err != nil {
		return Kernel{}, err
	}
	defer func() { _ = reader.Close() }()
	began := time.Now()
	kernel := Kernel{Differences: []ruleset.Difference{}}
	var previous []ruleset.Difference
	for attempt := range confirmations {
		found, err := kernel.compareOnce(ctx, options, reader)
		if err != nil {
			return Kernel{}, err
		}
		if attempt == 0 {
			kernel.Seconds = time.Since(began).Seconds()
		} else {
			found = slices.DeleteFunc(found, func(d ruleset.Difference) bool { return !slices.Contains(previous, d) })
		}
		if previous = found; len(found) == 0 {
			break
		}
		if attempt < confirmations-1 {
			select {
			case <-ctx.Done():
				return Kernel{}, ctx.Err()
			case <-time.After(time.Second):
			}
		}
	}
	if !options.IgnoreOtherProxies {
		if kernel.OtherProxies, err = reader.OtherProxies(ctx); err != nil {
			return Kernel{}, err
		}
	}
	kernel.Differences = append(kernel.Differences, previous...)
	kernel.InSync = len(previous) == 0
	return kernel, nil
}

// compareOnce compares once, and sets the counts. The kernel and the Services are read concurrently: a comparison takes
// as long as the slower of the two.
func (k *Kernel) compareOnce(ctx context.Context, options Options, reader *nft.Reader) ([]ruleset.Difference, error) {
	var change model.Change
	tables := map[model.Family]*nft.Table{}
	err := cli.RunAll(ctx, func(ctx context.Context) (err error) {
		if change, err = options.Load(ctx); err != nil {
			return err
		}
		change.LocalAddrs, err = interfaces.Addrs(ctx, slog.New(slog.DiscardHandler))
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
	desired, err := Desired(ctx, options.Node, options.Config, options.Zone, change, affinityNumbers(tables))
	if err != nil {
		return nil, err
	}
	k.Services, k.DNSServices, k.Elements = desired.Services, desired.DNSServices, 0
	var found []ruleset.Difference
	for _, family := range model.Families {
		differences, err := tables[family].Differences(&desired.Tables)
		if err != nil {
			return nil, err
		}
		found = append(found, differences...)
		k.Elements += tables[family].ElementsRead
	}
	return found, nil
}

// affinityNumbers returns the affinity numbers in the tables. The result has the contents of all sets, which include
// them.
func affinityNumbers(tables map[model.Family]*nft.Table) AffinityNumbers {
	numbers := AffinityNumbers{}
	for family, table := range tables {
		numbers[family] = ruleset.Objects{Contents: table.Objects.Contents}
	}
	return numbers
}
