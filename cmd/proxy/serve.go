package main

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/vicinity-proxy/vicinity/pkg/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/nft"
)

// serve is the daemon: it works until ctx ends, and leaves the rules in the kernel.
//
// What the daemon cannot do without is tried before anything changes: nftables and conntrack.
func serve(ctx context.Context, stdout, stderr io.Writer, flags *runFlags) (err error) {
	log := cli.NewLogger(stderr, flags.settings.LogFormat, flags.level)
	saveMemory()
	apiserver.LogTo(log)
	conn, err := nft.Dial(nft.Options{Owned: flags.ownTables == "auto"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	flows, err := conntrack.Dial()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, flows.Close()) }()
	log.Info("starting", "version", thisBuild().Version, "node", flags.node, "objects", flags.origin(), "owned-tables", conn.Owned())
	for _, note := range flags.notes {
		log.Info("a setting has no meaning here", "setting", note)
	}
	prepareNode(log, flags, conn.Families())
	d, err := newDaemon(flags, conn, flows, stdout, log)
	if err != nil {
		return err
	}
	err = d.run(ctx)
	log.Info("ended; the rules stay in the kernel")
	return err
}

// gcPercent is how much the heap may grow before it is collected, in percent of what is in use. Go's own 100 keeps a second cluster's
// worth of memory for a program that hardly allocates: a change makes a few kilobytes of garbage.
const gcPercent = 50

// reserve is never touched and so takes no memory, but the collector counts it as in use: any heap may grow by half of it before it is
// collected. In a small cluster half of what is in use would be two megabytes, and the collector would run several times a second as
// long as endpoints change, for a sixth of the processor time at 100 changes a second.
var reserve []byte

const reserveSize = 16 << 20

// saveMemory trades a little processor time for memory, unless somebody has decided that already.
func saveMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
		reserve = make([]byte, reserveSize)
		runtime.KeepAlive(reserve)
	}
}
