package installation_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/rulecases"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestAnOwnerIsNotifiedThatNobodyPublishesDemand checks that the warning appears only while there is no publisher.
func TestAnOwnerIsNotifiedThatNobodyPublishesDemand(t *testing.T) {
	in := install(t, manifests, 1)
	isWarned := func() bool {
		request := in.Admin.CoreV1().RESTClient().Post().Namespace(probedNamespace).Resource("services").Param("dryRun", "All")
		got := send(t.Context(), t, request, map[string]any{
			"apiVersion": "v1", "kind": "Service",
			"metadata": map[string]any{"name": "measured", "annotations": map[string]any{
				policy.TopologyModeAnnotation: policy.ModeBalanced, policy.DemandSourceAnnotation: policy.Measured,
			}},
			"spec": map[string]any{"selector": map[string]any{"app": "web"}, "ports": []any{map[string]any{"port": 80}}},
		})
		must.Succeed(t, got.err)
		return slices.ContainsFunc(got.findings, func(want rulecases.Want) bool { return want.Rule == "SVC044" })
	}
	wait.Success(t, "the Service's owner is warned", func() error {
		if !isWarned() {
			return errors.New("no warning")
		}
		return nil
	})
	in.publishDemand()
	wait.Success(t, "the owner is no longer warned", func() error {
		if isWarned() {
			return errors.New("still warned")
		}
		return nil
	})
}

// publishDemand writes the Lease of a publisher.
func (in *installation) publishDemand() {
	in.t.Helper()
	leases := in.Admin.CoordinationV1().Leases(installedNamespace)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: installedNamespace, Name: v1alpha1.DemandLeaseName},
		Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NowMicro())},
	}
	in.Create(in.t, lease)
	in.t.Cleanup(func() { must.Succeed(in.t, leases.Delete(context.Background(), lease.Name, metav1.DeleteOptions{})) })
}
