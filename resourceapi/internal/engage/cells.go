package engage

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/almonerhq/almoner/shared/spreadsheet"
)

// Cell returns a text of the public for a cell of a CSV file.
func Cell(text string) string { return spreadsheet.Cell(text) }

// CellsOf returns a cell for each field: the answer, or "" if there is none.
func CellsOf(fields []Field, stored json.RawMessage) ([]string, error) {
	var answers map[string]json.RawMessage
	if err := json.Unmarshal(stored, &answers); err != nil {
		return nil, fmt.Errorf("read stored answers: %w", err)
	}
	cells := make([]string, len(fields))
	for i, field := range fields {
		answer, given := answers[field.Name]
		if !given {
			continue
		}
		cell, err := cellOf(field, answer)
		if err != nil {
			return nil, fmt.Errorf("read a stored answer: %w", err)
		}
		cells[i] = cell
	}
	return cells, nil
}

// cellOf returns the cell of one answer. It does not change numbers and booleans, which cannot be formulas, nor phone
// numbers, which another system must read as they are (contract, section 6a).
func cellOf(field Field, answer json.RawMessage) (string, error) {
	if strings.HasPrefix(string(answer), "[") {
		var chosen []string
		err := json.Unmarshal(answer, &chosen)
		return Cell(strings.Join(chosen, "; ")), err
	}
	if strings.HasPrefix(string(answer), `"`) {
		var text string
		err := json.Unmarshal(answer, &text)
		if field.Type == Phone && checkPhone(text, Problems{Phone: "no phone number"}) == "" {
			return text, err
		}
		return Cell(text), err
	}
	if _, err := strconv.ParseFloat(string(answer), 64); err == nil {
		return string(answer), nil
	}
	return Cell(string(answer)), nil
}
