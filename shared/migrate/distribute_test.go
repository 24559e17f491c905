package migrate

import (
	"errors"
	"strings"
	"testing"
)

func TestApply_NeedsCitus(t *testing.T) {
	url, _ := freshDatabase(t)
	var said strings.Builder
	err := Distribution{Reference: []string{"account.tenants"}}.Apply(t.Context(), url, &said)
	if !errors.Is(err, ErrNoCitus) || said.String() != "" {
		t.Errorf("%v, %q", err, said.String())
	}
}
