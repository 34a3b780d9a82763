package election

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// Heartbeat renews a Lease, which confirms that the data it stands for is current for freshFor, and sets annotations of
// it; those without a value are removed. It elects no leader: clients only read its renewTime and annotations.
func Heartbeat(
	ctx context.Context, leases coordinationclient.LeaseInterface, name, identity string, freshFor time.Duration,
	annotations map[string]string,
) error {
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	isMissing := apierrors.IsNotFound(err)
	if isMissing {
		lease, err = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
	}
	if err == nil {
		lease.Spec = coordinationv1.LeaseSpec{
			HolderIdentity:       &identity,
			LeaseDurationSeconds: new(int32(freshFor / time.Second)),
			RenewTime:            new(metav1.NewMicroTime(time.Now())),
		}
		for key, value := range annotations {
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, key, value)
			if value == "" {
				delete(lease.Annotations, key)
			}
		}
		if isMissing {
			_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
		} else {
			_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		}
	}
	if err != nil {
		return fmt.Errorf("renew the Lease %s: %w", name, err)
	}
	return nil
}
