package app

import (
	"fmt"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
)

// RetentionSettings say how many days records are kept after they have ended.
type RetentionSettings struct {
	AuditDays         int `env:"ALMONER_RETENTION_AUDIT_DAYS" envDefault:"400" doc:"Days that events of the audit log are kept: 90 or more, or 0 to keep them for ever. The events of a month are deleted together, when the last of them is that old."`
	GrantsDays        int `env:"ALMONER_RETENTION_GRANTS_DAYS" envDefault:"90" doc:"Days that grants are kept after the end of their life, which is 30 or 90 days after the consent: 2 or more, or 0 to keep them for ever."`
	TokensDays        int `env:"ALMONER_RETENTION_TOKENS_DAYS" envDefault:"90" doc:"Days that personal access tokens are kept after they have expired, even if they were revoked or replaced; 0 keeps them for ever."`
	ClientsDays       int `env:"ALMONER_RETENTION_CLIENTS_DAYS" envDefault:"400" doc:"Days that applications are kept after they were deleted, so that the audit log can name them; 0 keeps them for ever. An application that has grants is kept until they are deleted."`
	KeysDays          int `env:"ALMONER_RETENTION_KEYS_DAYS" envDefault:"120" doc:"Days that removed signing keys are kept, without their private part: 91 or more, since access tokens live up to 90 days, or 0 to keep them for ever."`
	InvitationsDays   int `env:"ALMONER_RETENTION_INVITATIONS_DAYS" envDefault:"90" doc:"Days that invitations are kept after they were answered, withdrawn or expired; 0 keeps them for ever."`
	ConnectionLogDays int `env:"ALMONER_RETENTION_CONNECTION_LOG_DAYS" envDefault:"90" doc:"Days that the connection log keeps attempts that did not lead to a grant; 0 keeps them for ever."`
}

// Check reports the settings that are out of range. envconf calls it.
func (s RetentionSettings) Check() []error {
	var mistakes []error
	for _, one := range []struct {
		name          string
		days, atLeast int
	}{
		{postgres.SettingAuditEvents, s.AuditDays, 90},
		{postgres.SettingGrants, s.GrantsDays, 2},
		{postgres.SettingTokens, s.TokensDays, 1},
		{postgres.SettingClients, s.ClientsDays, 1},
		{postgres.SettingKeys, s.KeysDays, 91},
		{postgres.SettingInvitations, s.InvitationsDays, 1},
		{postgres.SettingConnectionLog, s.ConnectionLogDays, 1},
	} {
		if one.days != 0 && (one.days < one.atLeast || one.days > maxRetentionDays) {
			mistakes = append(mistakes, fmt.Errorf("%s must be 0, or between %d and %d",
				one.name, one.atLeast, maxRetentionDays))
		}
	}
	return mistakes
}

// maxRetentionDays is a hundred years.
const maxRetentionDays = 36_500

func (s RetentionSettings) periods() postgres.RetentionPeriods {
	days := func(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }
	return postgres.RetentionPeriods{
		AuditEvents:   days(s.AuditDays),
		Grants:        days(s.GrantsDays),
		Tokens:        days(s.TokensDays),
		Clients:       days(s.ClientsDays),
		Keys:          days(s.KeysDays),
		Invitations:   days(s.InvitationsDays),
		ConnectionLog: days(s.ConnectionLogDays),
	}
}
