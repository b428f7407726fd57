-- The time of collectives by group and operation, and the part of it in which the GPU does nothing else.
select run, group_name, operation, count(*) as collectives, sum(bytes) as bytes, sum(duration_ns) as duration_ns,
    sum(exposed_ns) as exposed_ns
from collectives
group by run, group_name, operation
order by run, group_name, operation
