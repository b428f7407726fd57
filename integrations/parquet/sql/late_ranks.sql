-- The ranks that the others wait for, the latest first.
select run, rank, steps, step_ns, least_ns, waited_for_ns
from late_rank_list
order by run, least_ns desc, rank
