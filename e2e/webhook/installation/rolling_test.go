package installation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestARollingRestartFailsNoRequest replaces two replicas as the Deployment does: a new one is ready before an old one
// is terminated. Reviews are enforced during that time, so that a failed call fails the request.
func TestARollingRestartFailsNoRequest(t *testing.T) {
	in := install(t, enforce, 2)
	in.raiseTimeouts()
	load := in.startLoad(100)
	old := in.running()
	in.callEveryReplica()
	for _, leaving := range old {
		before := load.made.Load()
		coming := in.startReplica()
		wait.Success(t, "the new replica is ready", coming.checkReady)
		must.Succeed(t, leaving.Signal(syscall.SIGTERM))
		wait.Success(t, "requests continue", func() error {
			if load.made.Load() < before+100 {
				return errors.New("not enough requests yet")
			}
			return nil
		})
	}
	for _, replaced := range old {
		err := replaced.Wait()
		if log := replaced.Log.String(); err != nil || !strings.Contains(log, "draining") || !strings.Contains(log, "msg=ended") {
			t.Errorf("%s exited (%v), log:\n%s", replaced.pod.Name, err, log)
		}
	}
	in.callEveryReplica()
	load.end(t)
	if now := in.running(); len(now) != 2 || slices.Contains(now, old[0]) || slices.Contains(now, old[1]) {
		t.Errorf("%d replicas run, want two new ones", len(now))
	}
}

// raiseTimeouts raises timeoutSeconds, because the machine of a test may be slower than a cluster. A call without a
// response still fails.
func (in *installation) raiseTimeouts() {
	in.t.Helper()
	in.Kubectl(in.t, "patch", "validatingwebhookconfiguration", installedName, "--type=json", "-p", `[
		{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 20},
		{"op": "replace", "path": "/webhooks/1/timeoutSeconds", "value": 20}]`)
}

// load is a constant rate of requests for each of which the API server calls the webhook.
type load struct {
	began   time.Time
	made    atomic.Int64
	stop    context.CancelFunc
	workers sync.WaitGroup

	mutex sync.Mutex
	errs  []error
}

// startLoad starts perSecond requests per second, alternating creates and updates. A slow machine may make fewer.
func (in *installation) startLoad(perSecond int) *load {
	in.t.Helper()
	const stored = "loaded"
	services := in.Admin.CoreV1().Services(probedNamespace)
	_, err := services.Create(in.t.Context(), serviceOf(stored, map[string]string{keysAnnotation: "*"}), metav1.CreateOptions{})
	must.Succeed(in.t, err)
	in.t.Cleanup(func() { must.Succeed(in.t, services.Delete(context.Background(), stored, metav1.DeleteOptions{})) })

	ctx, stop := context.WithCancel(context.Background())
	l := &load{began: time.Now(), stop: stop}
	dryRun := []string{metav1.DryRunAll}
	requests := []func(i int64) error{
		func(i int64) error {
			_, err := services.Create(context.Background(), serviceOf(fmt.Sprintf("new-%d", i), map[string]string{keysAnnotation: "*"}),
				metav1.CreateOptions{DryRun: dryRun})
			return err
		},
		func(i int64) error {
			changed := serviceOf(stored, map[string]string{keysAnnotation: "*", "example.com/round": fmt.Sprint(i)})
			_, err := services.Update(context.Background(), changed, metav1.UpdateOptions{DryRun: dryRun})
			return err
		},
	}
	ticks := time.NewTicker(time.Second / time.Duration(perSecond))
	var count atomic.Int64
	const workers = 16
	for range workers {
		l.workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-ticks.C:
				}
				i := count.Add(1)
				if err := requests[i%2](i); err != nil {
					l.fail(fmt.Errorf("%s: request %d: %w", time.Now().Format(time.StampMilli), i, err))
				}
				l.made.Add(1)
			}
		})
	}
	in.t.Cleanup(func() {
		stop()
		l.workers.Wait()
		ticks.Stop()
	})
	return l
}

func (l *load) fail(err error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.errs = append(l.errs, err)
}

// end stops the requests. Each failed request fails the test.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.workers.Wait()
	t.Logf("%d requests in %s", l.made.Load(), time.Since(l.began))
	for _, err := range l.errs {
		t.Error(err)
	}
}
