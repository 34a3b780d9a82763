package installation_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

const fileHead = "apiVersion: vicinity.dev/v1alpha1\nkind: TopologyAdmissionConfiguration\n"

func TestAnInvalidConfigurationIsRejectedAtTheStart(t *testing.T) {
	in := apply(t, manifests)
	in.mount(fileHead + "stict: true\n")
	r := in.runReplica(in.template)
	if state := r.State(); state != "exit status 1" {
		t.Errorf("the webhook exited with %s, want exit status 1", state)
	}
	const want = "config.yaml:3: stict: unknown field; did you mean strict?"
	if log := r.Log.String(); !strings.Contains(log, want) || strings.Contains(log, "serving") {
		t.Errorf("log:\n%s\nwant %q", log, want)
	}
}

func TestAConfigurationChangesWithoutARestartAndTheLastGoodOneStays(t *testing.T) {
	in := install(t, manifests, 2)
	pids := in.pids()
	waitForValid := func(want float64) {
		t.Helper()
		wait.Success(t, fmt.Sprintf("vicinity_webhook_configuration_valid is %v", want), func() error {
			for _, r := range in.running() {
				got, err := r.metric("vicinity_webhook_configuration_valid")
				if err != nil || got != want {
					return errors.Join(err, fmt.Errorf("%s has %v", r.pod.Name, got))
				}
			}
			return nil
		})
	}
	// Every replica gets some of the requests.
	expectDenied := func(want ...string) {
		t.Helper()
		services := in.Admin.CoreV1().Services(probedNamespace)
		for range 20 {
			_, err := services.Create(t.Context(), serviceOf("unknown-mode", map[string]string{modeAnnotation: "foo"}),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if got := denyingRules(err); !slices.Equal(got, want) || err != nil && want == nil {
				t.Fatalf("denied by %v, want %v: %v", got, want, err)
			}
		}
	}
	waitForValid(1)
	expectDenied()
	in.configure(fileHead + "strict: true\n")
	expectDenied("SVC022")

	in.mount(fileHead + "strict: true\nrules:\n  SVC022: of\n")
	waitForValid(0)
	expectDenied("SVC022")
	for _, r := range in.running() {
		for _, want := range []string{"keeping the last valid one", "config.yaml:5: rules.SVC022: "} {
			if log := r.Log.String(); !strings.Contains(log, want) {
				t.Errorf("%s did not log %q:\n%s", r.pod.Name, want, log)
			}
		}
		must.Succeed(t, r.checkReady())
	}

	in.configure(fileHead + "strict: true\nrules:\n  SVC022: \"off\"\n")
	waitForValid(1)
	expectDenied()
	if now := in.pids(); !slices.Equal(now, pids) {
		t.Errorf("processes %v, want %v as before", now, pids)
	}
}

func (in *installation) pids() []int {
	var pids []int
	for _, r := range in.running() {
		pids = append(pids, r.PID())
	}
	return pids
}
