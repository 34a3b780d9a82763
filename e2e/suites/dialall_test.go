//go:build e2e

package suites

import (
	"context"
	"fmt"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// outcome is the result of one client's connections to one target.
type outcome struct {
	results
	err    error // of the request to the client's control API
	client testPod
	to     target
}

func (o outcome) String() string { return fmt.Sprintf("%s to %s: %s", o.client, o.to, o.results) }

// maxConcurrent is the number of clients that dial at the same time. Most of the time they wait.
const maxConcurrent = 8

// dialAll makes every client dial every target.
func dialAll(ctx context.Context, clients testPods, targets []target, how dialling) []outcome {
	GinkgoHelper()
	return dialSome(ctx, clients, targets, how, maxConcurrent)
}

// dialTogether makes every client dial every target, all at the same time, so that all of them see a concurrent change
// to the same extent.
func dialTogether(ctx context.Context, clients testPods, targets []target, how dialling) []outcome {
	GinkgoHelper()
	return dialSome(ctx, clients, targets, how, len(clients)*len(targets))
}

func dialSome(ctx context.Context, clients testPods, targets []target, how dialling, limit int) []outcome {
	GinkgoHelper()
	Expect(clients).NotTo(BeEmpty(), "clients")
	Expect(targets).NotTo(BeEmpty(), "targets")
	var all []outcome
	for _, client := range clients {
		for _, to := range targets {
			all = append(all, outcome{client: client, to: to})
		}
	}
	var requests sync.WaitGroup
	free := make(chan struct{}, limit)
	for i := range all {
		free <- struct{}{}
		requests.Go(func() {
			defer func() { <-free }()
			all[i].results, all[i].err = all[i].client.dial(ctx, all[i].to, how)
		})
	}
	requests.Wait()
	return all
}
