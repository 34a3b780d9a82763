package daemon

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/interfaces"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
)

// Run runs the daemon until ctx ends, and leaves the rules in the kernel.
//
// It opens nftables and conntrack, which it needs, before it changes anything.
func Run(ctx context.Context, stdout io.Writer, log *slog.Logger, options *Options) (err error) {
	limitGarbage()
	kube.LogTo(log)
	conn, err := nft.Dial(nft.Options{Owned: options.OwnTables})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	table, err := conntrack.Dial()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.Close()) }()
	routes, err := interfaces.OpenRoutes()
	if err != nil {
		return err
	}
	defer routes.Close()
	log.Info("starting", "version", options.Build.Version, "node", options.Node,
		"objects", cmp.Or(options.Manifests, "the cluster"), "ownedTables", conn.Owned(), "configuration", options.configurationFile())
	for _, note := range options.IgnoredSettings {
		log.Info("a setting has no effect here", "setting", note)
	}
	setOOMScore(log, options.Settings.OOMScoreAdj)
	all, err := newComponents(ctx, newCommon(options, conn, log), table, routes.IsLocal, stdout)
	if err != nil {
		return err
	}
	err = all.run(ctx)
	log.Info("ended; the rules stay in the kernel")
	return err
}

// gcPercent is how much the heap may grow before a collection, in percent of live memory. Go's default of 100
// would double the memory of a program that hardly allocates: a change creates a few kilobytes of garbage.
const gcPercent = 50

// memoryBallast is never touched and so takes no memory, but the collector counts it as live: any heap may grow by half
// of it before a collection. In a small cluster half of live memory would be two megabytes. While endpoints change, the
// collector would run several times a second, and take a sixth of the CPU time at 100 changes a second.
var memoryBallast []byte

const ballastSize = 16 << 20

// limitGarbage trades a little CPU time for memory, unless GOGC is set.
func limitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
		memoryBallast = make([]byte, ballastSize)
		runtime.KeepAlive(memoryBallast)
	}
}
