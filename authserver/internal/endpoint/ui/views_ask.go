package ui

// An Ask is the button with which a user asks the administrators of a workspace for access.
type Ask struct {
	Workspace string
	Ticket    string   // for the form, or "" if the deployment sends no mail
	People    []Person // whom to ask instead, if the user may see the members
	None      bool     // no other member can be asked
	Policy    bool     // the members who manage API access are asked, not those who manage members
}
