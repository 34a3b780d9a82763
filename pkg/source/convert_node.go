package source

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Node turns a v1 Node into a value of the model: its name and its labels, all that a decision reads.
func Node(node *corev1.Node) (*model.Node, field.ErrorList) {
	metadata := field.NewPath("metadata")
	errs := checkName(metadata.Child("name"), node.Name, validation.IsDNS1123Subdomain)
	if node.Namespace != "" {
		errs = append(errs, field.Forbidden(metadata.Child("namespace"), "not allowed on this type"))
	}
	errs = append(errs, metav1validation.ValidateLabels(node.Labels, metadata.Child("labels"))...)
	if len(errs) > 0 {
		return nil, errs
	}
	return &model.Node{Name: node.Name, Labels: maps.Clone(node.Labels)}, nil
}
