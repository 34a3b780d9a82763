package policies_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// oldestVersion is the first Kubernetes with ValidatingAdmissionPolicies in v1. Its API server rejects a policy that
// uses newer CEL features.
var oldestVersion = version.MajorMinor(1, 30)

func TestThePoliciesCompileWithKubernetes130(t *testing.T) {
	compiled := 0
	for _, policy := range shippedPolicies(t) {
		compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(oldestVersion))
		must.Succeed(t, err)
		options := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
		check := func(what string, result plugincel.CompilationResult) {
			if compiled++; result.Error != nil {
				t.Errorf("%s: %s: %v", policy.Name, what, result.Error)
			}
		}
		for i := range policy.Spec.MatchConditions {
			condition := (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i])
			check(condition.Name, compiler.CompileCELExpression(condition, options, environment.NewExpressions))
		}
		for _, one := range policy.Spec.Variables {
			variable := &validating.Variable{Name: one.Name, Expression: one.Expression}
			check(one.Name, compiler.CompileAndStoreVariable(variable, options, environment.NewExpressions))
		}
		for _, one := range policy.Spec.Validations {
			condition := &validating.ValidationCondition{Expression: one.Expression}
			check(one.Expression, compiler.CompileCELExpression(condition, options, environment.NewExpressions))
			message := &validating.MessageExpressionCondition{MessageExpression: one.MessageExpression}
			check(one.MessageExpression, compiler.CompileCELExpression(message, options, environment.NewExpressions))
		}
	}
	if compiled == 0 {
		t.Error("no policy has an expression")
	}
}

// Several policies are about Services. A variable with the same name must be the same in all of them.
func TestSharedVariablesHaveTheSameExpression(t *testing.T) {
	type definition struct{ expression, policy string }
	kinds := map[string]map[string]definition{}
	for _, policy := range shippedPolicies(t) {
		kind := policy.Spec.MatchConstraints.ResourceRules[0].Resources[0]
		if kinds[kind] == nil {
			kinds[kind] = map[string]definition{}
		}
		for _, variable := range policy.Spec.Variables {
			other, defined := kinds[kind][variable.Name]
			if defined && other.expression != variable.Expression {
				t.Errorf("%s and %s differ in %s", other.policy, policy.Name, variable.Name)
			}
			kinds[kind][variable.Name] = definition{variable.Expression, policy.Name}
		}
	}
}

// shippedPolicies returns the ValidatingAdmissionPolicies as shipped. An unknown field fails the test.
func shippedPolicies(t *testing.T) []*admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	must.Succeed(t, err)
	var policies []*admissionregistrationv1.ValidatingAdmissionPolicy
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			must.Succeed(t, err)
			if policy := policyIn(t, document); policy != nil {
				policies = append(policies, policy)
			}
		}
	}
	if len(policies) == 0 {
		t.Fatalf("no policies in %v", files)
	}
	return policies
}

// policyIn parses a policy. It returns nil if the document is something else.
func policyIn(t *testing.T, document []byte) *admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	must.Succeed(t, yaml.Unmarshal(document, policy))
	if policy.Kind != "ValidatingAdmissionPolicy" {
		return nil
	}
	must.Succeed(t, yaml.UnmarshalStrict(document, policy))
	return policy
}
