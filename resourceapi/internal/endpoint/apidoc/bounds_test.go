package apidoc

import (
	"fmt"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/openapi"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

func TestDescription_SearchLengthMatchesEnforcedLimit(t *testing.T) {
	d, err := openapi.New("https://api.example.org")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range d.Operations() {
		for _, one := range o.List("parameters") {
			if p := d.Resolve(one.(openapi.Object)); p.Text("name") == "q" &&
				fmt.Sprint(p.Map("schema").Value("maxLength")) != fmt.Sprint(programme.MaxSearch) {
				t.Errorf(
					"%s %s: maxLength %v of q, not %d",
					o.Method,
					o.Path,
					p.Map("schema").Value("maxLength"),
					programme.MaxSearch,
				)
			}
		}
	}
}
