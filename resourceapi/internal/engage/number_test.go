package engage

import (
	"encoding/json"
	"testing"
)

func TestReadNumber_RefusesNumbersPostgresCannotStore(t *testing.T) {
	for _, good := range []string{"0", "-1.50", "1e3", "1E-300", "12.5e+2"} {
		if _, problem := readNumber(json.RawMessage(good), Problems{}); problem != "" {
			t.Errorf("%s: %s", good, problem)
		}
	}
	for _, bad := range []string{
		`"1"`, "1e400", "1e-20000", "1e-999999999999", "0e-99999", "0e99999999999999999999", "true", "[1]",
	} {
		if _, problem := readNumber(json.RawMessage(bad), Problems{Number: "Please enter a number."}); problem == "" {
			t.Errorf("%s: accepted as a number", bad)
		}
	}
}
