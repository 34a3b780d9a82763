package bench_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	gosync "sync"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// busyRow has the times of restarts with one kind of foreign ruleset.
type busyRow struct {
	foreign  string
	restarts []time.Duration
}

// A dump of the ruleset takes longer than the interval between two transactions of other programs, so that every dump
// is interrupted.
const (
	foreignChains   = 40_000
	foreignInterval = time.Second / 50
)

// BenchmarkBusyRuleset restarts a proxy with 10,000 Services: alone, with a large foreign ruleset, and with a foreign
// ruleset that changes all the time.
func BenchmarkBusyRuleset(b *testing.B) {
	size := size{10_000, 10, false}
	m := newMachine(b)
	configIPv4 := config
	configIPv4.Families = []model.Family{model.IPv4}
	everything := size.cluster().Merge(m.nodeChange())
	rows := []busyRow{{foreign: "none"}, {foreign: "40,000 chains"}, {foreign: "40,000 chains, 50 transactions a second"}}
	restart := func(row *busyRow) {
		p := syncer.New(ownNode, configIPv4, m.tables)
		p.Apply(everything)
		started := time.Now()
		sync(b, p)
		row.restarts = append(row.restarts, time.Since(started))
	}
	p := syncer.New(ownNode, configIPv4, m.tables)
	p.Apply(everything)
	sync(b, p)
	for b.Loop() {
		for range 5 {
			restart(&rows[0])
		}
		m.addForeignChains(b)
		for range 5 {
			restart(&rows[1])
		}
		stop := m.changeRulesetUntilStopped(b)
		for range 5 {
			restart(&rows[2])
		}
		stop()
		m.nft(b, "delete table ip strangers\n")
	}
	results.busy = rows
}

func (m *machine) addForeignChains(b *testing.B) {
	b.Helper()
	var text strings.Builder
	text.WriteString("add table ip strangers\n")
	for number := range foreignChains {
		fmt.Fprintf(&text, "add chain ip strangers chain-%d\n", number)
	}
	m.nft(b, text.String())
}

func (m *machine) nft(b *testing.B, text string) {
	b.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	if _, err := m.Run(cmd); err != nil {
		b.Fatal(err)
	}
}

// changeRulesetUntilStopped keeps changing the ruleset in another table until it is stopped.
func (m *machine) changeRulesetUntilStopped(b *testing.B) (stop func()) {
	b.Helper()
	var other *nft.Conn
	err := m.Do(func() (err error) {
		other, err = nft.Dial(nft.Options{})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var busy gosync.WaitGroup
	busy.Go(func() {
		defer other.Close()
		table := ruleset.Batch{Ops: []ruleset.Op{{Verb: ruleset.Add, Family: model.IPv6, Object: ruleset.TableObject{}}}}
		for ticker := time.NewTicker(foreignInterval); ctx.Err() == nil; <-ticker.C {
			if err := other.Commit(context.WithoutCancel(ctx), table); err != nil {
				b.Errorf("commit from another connection: %v", err)
				return
			}
			table.Ops[0].Verb = ruleset.Add + ruleset.Delete - table.Ops[0].Verb
		}
	})
	return func() {
		cancel()
		busy.Wait()
	}
}
